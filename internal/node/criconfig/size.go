// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Size is the part of a container's or a pod's resources that can change while it runs (KEP-1287):
// CPU in millicores, memory in bytes, 0 for none.
type Size struct {
	CPURequest    int64 `json:"cpuRequest,omitempty"`
	CPULimit      int64 `json:"cpuLimit,omitempty"`
	MemoryRequest int64 `json:"memoryRequest,omitempty"`
	MemoryLimit   int64 `json:"memoryLimit,omitempty"`
}

func sizeOf(requests, limits v1.ResourceList) Size {
	return Size{
		CPURequest: requests.Cpu().MilliValue(), CPULimit: limits.Cpu().MilliValue(),
		MemoryRequest: requests.Memory().Value(), MemoryLimit: limits.Memory().Value(),
	}
}

// ContainerSize returns a container's size. The pod's limit applies where the container has none.
func ContainerSize(pod *v1.Pod, c *v1.Container) Size {
	s := sizeOf(c.Resources.Requests, c.Resources.Limits)
	cpu, memory := limitOf(pod, c, v1.ResourceCPU), limitOf(pod, c, v1.ResourceMemory)
	s.CPULimit, s.MemoryLimit = cpu.MilliValue(), memory.Value()
	return s
}

// PodSize returns the size of a pod's cgroup.
func PodSize(pod *v1.Pod) Size {
	return sizeOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}),
		resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}))
}

// IsLimited reports whether the pod's cgroup limits a resource: the pod or every one of its containers has a limit.
func IsLimited(p *v1.Pod, name v1.ResourceName) bool {
	if p.Spec.Resources != nil {
		if limit, ok := p.Spec.Resources.Limits[name]; ok && !limit.IsZero() {
			return true
		}
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if limit := list[i].Resources.Limits[name]; limit.IsZero() {
				return false
			}
		}
	}
	return true
}

// String returns the size as AnnotationSize stores it; ParseSize reads it.
func (s Size) String() string {
	data, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(data)
}

// ParseSize reads what String wrote, and returns false for anything else.
func ParseSize(text string) (s Size, ok bool) {
	return s, json.Unmarshal([]byte(text), &s) == nil
}

// Amount returns a quantity as Size counts it: CPU in millicores, everything else in units.
func Amount(name v1.ResourceName, quantity resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}
