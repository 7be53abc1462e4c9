// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/clock"
)

const requests = corev1.DefaultResourceRequestsPrefix

// ofPods holds the names without a domain that pods use.
var ofPods = []corev1.ResourceName{
	corev1.ResourcePods,
	corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
	corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
	corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage,
}

// mustBeSet holds the resources that each container must set if a quota counts them. Upstream
// regards this as a mistake and adds none.
var mustBeSet = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
	corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
}

func pods(list generic.ListFuncByNamespace, c clock.PassiveClock) quota.Evaluator {
	return &evaluator[*corev1.Pod]{
		counted: corev1.Resource("pods"), list: list,
		handles: changesPodUsage,
		counts: func(name corev1.ResourceName) bool {
			return slices.Contains(ofPods, name) || isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || isRequestOfExtended(name)
		},
		usage:   always(func(p *corev1.Pod) corev1.ResourceList { return podUsage(p, c) }),
		inScope: podInScope,
		moved:   func(now, old *corev1.Pod) bool { return isTerminating(now) != isTerminating(old) },
		require: requireResources,
	}
}

// changesPodUsage reports whether a request may change the usage or the scopes of a pod: it creates
// or resizes the pod, or sets its deadline.
func changesPodUsage(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		if a.GetOperation() != admission.Update {
			return a.GetOperation() == admission.Create
		}
		p, isPod := a.GetObject().(*corev1.Pod)
		old, wasPod := a.GetOldObject().(*corev1.Pod)
		return isPod && wasPod && isTerminating(p) != isTerminating(old)
	case "resize":
		return a.GetOperation() == admission.Update
	}
	return false
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isRequestOfExtended reports whether a name counts requests of an extended resource:
// requests.example.com/gpu.
func isRequestOfExtended(name corev1.ResourceName) bool {
	resource, found := strings.CutPrefix(string(name), requests)
	return found && (!isNative(resource) || strings.HasPrefix(resource, resourcev1.ResourceDeviceClassPrefix))
}

func isNative(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}

// isExtended reports whether a resource is an extended resource, by its own name or that of a
// device class (KEP-5004).
func isExtended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !isNative(string(name)) && !strings.HasPrefix(string(name), requests) && len(validation.IsQualifiedName(requests+string(name))) == 0
}

// requireResources requires every container to set the counted resources, unless they are set at
// pod level.
func requireResources(p *corev1.Pod, counted []corev1.ResourceName) error {
	if resourcehelper.IsPodLevelResourcesSet(p) {
		return nil
	}
	missing := map[corev1.ResourceName][]string{}
	for _, container := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		set := computeUsage(container.Resources.Requests, container.Resources.Limits)
		for _, name := range quota.Intersection(counted, mustBeSet) {
			if _, found := set[name]; !found && !slices.Contains(missing[name], container.Name) {
				missing[name] = append(missing[name], container.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var messages []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		messages = append(messages, fmt.Sprintf("%s for: %s", name, strings.Join(missing[name], ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(messages, "; "))
}

// podUsage returns the usage of a pod. A pod that is over uses only its object count.
func podUsage(p *corev1.Pod, c clock.PassiveClock) corev1.ResourceList {
	if isOver(p, c) {
		return nil
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	return computeUsage(resourcehelper.PodRequests(p, options), resourcehelper.PodLimits(p, options))
}

// isOver reports whether a pod has ended or its grace period is over: a pod on a lost node must not
// block its replacement.
func isOver(p *corev1.Pod, c clock.PassiveClock) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return false
	}
	grace := time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	return c.Now().After(p.DeletionTimestamp.Add(grace))
}

// computeUsage returns requests and limits under the names of quotas.
func computeUsage(requested, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: number(1)}
	for name, quantity := range requested {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, isHugePages(name):
			used[name] = quantity
			used[requests+name] = quantity
		case isExtended(name):
			used[requests+name] = quantity
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if quantity, found := limits[name]; found {
			used["limits."+name] = quantity
		}
	}
	return used
}

func podInScope(p *corev1.Pod, selector corev1.ScopedResourceSelectorRequirement) (bool, error) {
	switch selector.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(p), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(p), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(p), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(p), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if p.Spec.PriorityClassName == "" {
			return selects(selector)
		}
		return selects(selector, p.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return hasCrossNamespaceAffinity(p.Spec.Affinity), nil
	}
	return false, nil
}

func isBestEffort(p *corev1.Pod) bool { return qos.GetPodQOS(p) == corev1.PodQOSBestEffort }

// isTerminating reports whether a pod has a deadline.
func isTerminating(p *corev1.Pod) bool {
	return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

// hasCrossNamespaceAffinity reports whether the pod has an affinity or anti-affinity to pods of
// other namespaces.
func hasCrossNamespaceAffinity(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, weighted := range preferred {
			terms = append(terms, weighted.PodAffinityTerm)
		}
	}
	if near := affinity.PodAffinity; near != nil {
		add(near.RequiredDuringSchedulingIgnoredDuringExecution, near.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if far := affinity.PodAntiAffinity; far != nil {
		add(far.RequiredDuringSchedulingIgnoredDuringExecution, far.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool {
		return len(term.Namespaces) != 0 || term.NamespaceSelector != nil
	})
}
