// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// containerMemoryLimit returns the limit of a container in bytes; 0 if it has none.
func containerMemoryLimit(p *PodSnapshot, name string) int64 {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Resources.Limits.Memory().Value()
			}
		}
	}
	return 0
}

// memoryLimit returns the limit of a pod in bytes; 0 if one of its containers has none.
func memoryLimit(p *PodSnapshot) int64 {
	if p.Spec.Resources != nil {
		if limit := p.Spec.Resources.Limits.Memory(); !limit.IsZero() {
			return limit.Value()
		}
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
			return 0
		}
	}
	limits := resourcehelper.PodLimits(p.Pod.Pod, resourcehelper.PodResourcesOptions{})
	return limits.Memory().Value()
}
