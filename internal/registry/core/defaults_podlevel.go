// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// DefaultPodResources completes spec.resources, the resources of a pod as a
// whole, from those of its containers (KEP-2837). It belongs to
// PrepareForCreate, not to the scheme's defaults: only after admission are all
// containers there, a webhook's sidecars among them.
func DefaultPodResources(pod *v1.Pod) {
	if pod.Spec.Resources == nil {
		return
	}
	defaultHugePageLimits(pod)
	defaultPodRequests(pod)
}

// defaultHugePageLimits limits the pod to the huge pages of its containers,
// which cannot be overcommitted, unless the pod requests some itself.
func defaultHugePageLimits(pod *v1.Pod) {
	resources := pod.Spec.Resources
	if len(resources.Limits) == 0 && len(resources.Requests) == 0 {
		return
	}
	pages := v1.ResourceList{}
	for name, quantity := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
		_, requested := resources.Requests[name]
		if isHugePages(name) && resourcehelper.IsSupportedPodLevelResource(name) && !requested {
			pages[name] = quantity
		}
	}
	if len(pages) > 0 {
		addMissing(&resources.Limits, pages)
	}
}

// defaultPodRequests requests for a pod with limits what its containers request
// together; of what none of them requests, as much as the limit.
func defaultPodRequests(pod *v1.Pod) {
	resources := pod.Spec.Resources
	if len(resources.Limits) == 0 {
		return
	}
	requests := v1.ResourceList{}
	for name, quantity := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		// Every supported resource but huge pages may be overcommitted.
		if resourcehelper.IsSupportedPodLevelResource(name) && !isHugePages(name) {
			requests[name] = quantity
		}
	}
	for name, quantity := range resources.Limits {
		if _, found := requests[name]; !found && resourcehelper.IsSupportedPodLevelResource(name) {
			requests[name] = quantity
		}
	}
	if len(requests) > 0 {
		addMissing(&resources.Requests, requests)
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
