// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package limitranger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	helpers "k8s.io/component-helpers/resource"
)

// annotation is the key of a pod's annotation that lists the requests and limits that the plugin has
// set.
const annotation = "kubernetes.io/limit-ranger"

// setDefaults sets the requests and limits that a pod's containers leave out to the
// defaults of a LimitRange.
func setDefaults(r *corev1.LimitRange, pod *corev1.Pod) {
	defaults := defaultsOf(r)
	var set []string
	for i := range pod.Spec.Containers {
		set = append(set, fill(&pod.Spec.Containers[i], defaults, "container")...)
	}
	for i := range pod.Spec.InitContainers {
		set = append(set, fill(&pod.Spec.InitContainers[i], defaults, "init container")...)
	}
	if len(set) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
}

func defaultsOf(r *corev1.LimitRange) corev1.ResourceRequirements {
	defaults := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, limit := range r.Spec.Limits {
		if limit.Type == corev1.LimitTypeContainer {
			maps.Copy(defaults.Requests, limit.DefaultRequest)
			maps.Copy(defaults.Limits, limit.Default)
		}
	}
	return defaults
}

// fill sets a container's defaults and describes each list that it has changed.
func fill(c *corev1.Container, defaults corev1.ResourceRequirements, kind string) []string {
	var set []string
	if names := fillList(&c.Resources.Requests, defaults.Requests); len(names) > 0 {
		set = append(set, fmt.Sprintf("%s request for %s %s", strings.Join(names, ", "), kind, c.Name))
	}
	if names := fillList(&c.Resources.Limits, defaults.Limits); len(names) > 0 {
		set = append(set, fmt.Sprintf("%s limit for %s %s", strings.Join(names, ", "), kind, c.Name))
	}
	return set
}

func fillList(list *corev1.ResourceList, defaults corev1.ResourceList) []string {
	var set []string
	for _, name := range sortedNames(defaults) {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = defaults[name].DeepCopy()
		set = append(set, string(name))
	}
	return set
}

// checkPod returns all violations of a LimitRange by a pod.
func checkPod(r *corev1.LimitRange, pod *corev1.Pod) error {
	var errs []error
	for _, limit := range r.Spec.Limits {
		switch limit.Type {
		case corev1.LimitTypeContainer:
			for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for i := range containers {
					errs = append(errs, checkRequirements(limit, containers[i].Resources.Requests, containers[i].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			// The overhead belongs to the runtime, not to the user.
			options := helpers.PodResourcesOptions{ExcludeOverhead: true}
			errs = append(errs, checkRequirements(limit, helpers.PodRequests(pod, options), helpers.PodLimits(pod, options))...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// checkClaim returns all violations by a claim. A claim's limits do not count.
func checkClaim(r *corev1.LimitRange, claim *corev1.PersistentVolumeClaim) error {
	var errs []error
	for _, limit := range r.Spec.Limits {
		if limit.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		requests := claim.Spec.Resources.Requests
		errs = append(errs, every(limit.Min, func(b bound) error { return b.min(limit.Type, requests, nil) })...)
		errs = append(errs, every(limit.Max, func(b bound) error { return b.maxRequest(limit.Type, requests) })...)
	}
	return utilerrors.NewAggregate(errs)
}

func checkRequirements(limit corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	errs := every(limit.Min, func(b bound) error { return b.min(limit.Type, requests, limits) })
	errs = append(errs, every(limit.Max, func(b bound) error { return b.max(limit.Type, requests, limits) })...)
	return append(errs, every(limit.MaxLimitRequestRatio, func(b bound) error { return b.ratio(limit.Type, requests, limits) })...)
}

// bound is one quantity of a LimitRange.
type bound struct {
	name  corev1.ResourceName
	value resource.Quantity
}

// every checks all bounds of a list, ordered by resource name.
func every(list corev1.ResourceList, check func(bound) error) []error {
	var errs []error
	for _, name := range sortedNames(list) {
		if err := check(bound{name: name, value: list[name]}); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// min returns an error unless there is a request, and request and limit are at least the bound.
func (b bound) min(t corev1.LimitType, requests, limits corev1.ResourceList) error {
	request, requested := requests[b.name]
	limit, limited := limits[b.name]
	switch {
	case !requested:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", b.name, t, b.value.String())
	case request.Cmp(b.value) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", b.name, t, b.value.String(), request.String())
	case limited && limit.Cmp(b.value) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", b.name, t, b.value.String(), limit.String())
	default:
		return nil
	}
}

// max returns an error unless there is a limit, and request and limit are at most the bound.
func (b bound) max(t corev1.LimitType, requests, limits corev1.ResourceList) error {
	request, requested := requests[b.name]
	limit, limited := limits[b.name]
	switch {
	case !limited:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", b.name, t, b.value.String())
	case limit.Cmp(b.value) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", b.name, t, b.value.String(), limit.String())
	case requested && request.Cmp(b.value) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", b.name, t, b.value.String(), request.String())
	default:
		return nil
	}
}

// maxRequest is max for claims, whose limits do not count.
func (b bound) maxRequest(t corev1.LimitType, requests corev1.ResourceList) error {
	request, requested := requests[b.name]
	switch {
	case !requested:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", b.name, t, b.value.String())
	case request.Cmp(b.value) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", b.name, t, b.value.String(), request.String())
	default:
		return nil
	}
}

// ratio returns an error if the limit divided by the request exceeds the bound, or if one of them
// is missing. It limits overcommitment.
func (b bound) ratio(t corev1.LimitType, requests, limits corev1.ResourceList) error {
	request, limit := requests[b.name], limits[b.name]
	if request.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", b.name, t, b.value.String())
	}
	if limit.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", b.name, t, b.value.String())
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > b.value.AsApproximateFloat64() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", b.name, t, b.value.String(), ratio)
	}
	return nil
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}
