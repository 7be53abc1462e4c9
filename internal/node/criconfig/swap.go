// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"
)

// Swap limits the swap of containers (KEP-2400). The zero value leaves it to the kernel.
type Swap struct {
	// Controlled is set if the kernel can limit the swap of a cgroup, Unified if it has cgroups of version 2.
	Controlled, Unified bool
	// Limited gives Burstable pods a share of it (LimitedSwap). Others have none, and so have all with NoSwap.
	Limited bool
	// Capacity is the node's swap in bytes.
	Capacity int64
}

// systemCritical is the least priority of pods that the system needs, which do not swap.
const systemCritical = 2_000_000_000

// cgroup2MaxSwap is the file with the limit, in cgroups of version 2.
const cgroup2MaxSwap = "memory.swap.max"

// Swaps reports whether a container may use swap.
func (s Swap) Swaps(pod *v1.Pod, c *v1.Container) bool {
	if !s.Limited || !s.Controlled || !s.Unified || isCritical(pod) || qos.GetPodQOS(pod) != v1.PodQOSBurstable {
		return false
	}
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	return request.Cmp(*limit) != 0 // both zero is no request
}

// limit returns how many bytes of swap a container may use: the share of the node's swap that its request has of the
// node's memory.
func (s Swap) limit(pod *v1.Pod, c *v1.Container, nodeMemory int64) int64 {
	request := c.Resources.Requests.Memory().Value()
	if !s.Swaps(pod, c) || nodeMemory <= 0 || request > nodeMemory {
		return 0
	}
	return int64(float64(request) / float64(nodeMemory) * float64(s.Capacity))
}

// apply sets the container's limit. Cgroups of version 1 have a limit for memory and swap together.
func (s Swap) apply(r *runtimeapi.LinuxContainerResources, limit int64) {
	switch {
	case !s.Controlled:
	case s.Unified:
		r.Unified = map[string]string{cgroup2MaxSwap: strconv.FormatInt(limit, 10)}
	default:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	}
}

func isCritical(pod *v1.Pod) bool {
	_, mirror := pod.Annotations["kubernetes.io/config.mirror"]
	source := pod.Annotations["kubernetes.io/config.source"]
	return mirror || source != "" && source != "api" || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}
