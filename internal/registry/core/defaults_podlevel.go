// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// DefaultPodResources completes spec.resources, the resources of a pod as a
// whole, from those of its containers (KEP-2837). It belongs to
// PrepareForCreate, not to the scheme's defaults: the list of containers is only
// complete after admission, which may add sidecars.
//
// The order matters: limits of huge pages become requests, and limits are made
// from requests that are complete.
func DefaultPodResources(pod *v1.Pod) {
	resources := pod.Spec.Resources
	if resources == nil || len(resources.Requests)+len(resources.Limits) == 0 {
		return
	}
	defaultHugePageLimits(pod)
	defaultPodRequests(pod)
	defaultPodLimits(pod)
}

// defaultHugePageLimits limits the pod to the huge pages of its containers, which cannot be
// overcommitted, unless the pod itself requests huge pages.
func defaultHugePageLimits(pod *v1.Pod) {
	resources := pod.Spec.Resources
	pages := v1.ResourceList{}
	for name, quantity := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if _, requested := resources.Requests[name]; isHugePages(name) && !requested {
			pages[name] = quantity
		}
	}
	addMissing(&resources.Limits, pages)
}

// defaultPodRequests sets the pod's requests to the sum of its containers' requests, and of resources
// that no container requests to the pod's limit.
func defaultPodRequests(pod *v1.Pod) {
	resources := pod.Spec.Resources
	requests := v1.ResourceList{}
	for name, quantity := range resources.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			requests[name] = quantity
		}
	}
	for name, quantity := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if resourcehelper.IsSupportedPodLevelResource(name) && !isHugePages(name) {
			requests[name] = quantity
		}
	}
	addMissing(&resources.Requests, requests)
}

// defaultPodLimits sets the pod's limits to the sum of its containers' limits if each of them has
// one, and at least to the pod's requests.
func defaultPodLimits(pod *v1.Pod) {
	resources := pod.Spec.Resources
	together := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	limits := v1.ResourceList{}
	for name, request := range resources.Requests {
		limit, found := together[name]
		if !found || !resourcehelper.IsSupportedPodLevelResource(name) || !allLimited(&pod.Spec, name) {
			continue
		}
		if limit.Cmp(request) < 0 {
			limit = request
		}
		limits[name] = limit
	}
	addMissing(&resources.Limits, limits)
}

func allLimited(spec *v1.PodSpec, name v1.ResourceName) bool {
	unlimited := func(container v1.Container) bool {
		_, limited := container.Resources.Limits[name]
		return !limited
	}
	return !slices.ContainsFunc(spec.InitContainers, unlimited) && !slices.ContainsFunc(spec.Containers, unlimited)
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
