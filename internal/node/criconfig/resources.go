// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"
)

// The kernel's terms for CPU time: shares of 1024 a CPU, and quota in a period, both in microseconds.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	minQuota     = 1000
)

// The oom_score_adj of the Guaranteed and BestEffort classes. The score of a Burstable container is
// between them and depends on how much of the node's memory it requests.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// nodeCritical is the priority class of pods that are killed last.
const nodeCritical = "system-node-critical"

// CPUShares converts a CPU request in millicores to shares.
func CPUShares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

// NoQuota is the quota of a container that is not limited.
const NoQuota = -1

// Quota enforces CPU limits. The zero value enforces them in periods of 100 ms.
type Quota struct {
	// Off is set if CPU limits are not enforced (cpuCFSQuota: false).
	Off bool
	// Period is the time for which a container gets its quota (cpuCFSQuotaPeriod).
	Period time.Duration
}

// set sets the quota and the period of a CPU limit in millicores; 0 is no limit.
func (q Quota) set(r *runtimeapi.LinuxContainerResources, milli int64) {
	if q.Off {
		return
	}
	r.CpuPeriod = cmp.Or(q.Period, 100*time.Millisecond).Microseconds()
	if milli > 0 {
		r.CpuQuota = max(milli*r.CpuPeriod/1000, minQuota)
	}
}

// ContainerResources returns a container's requests and limits for the runtime.
func (h Host) ContainerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	resources := h.containerResources(pod, c)
	h.Swap.apply(resources, h.Swap.limit(pod, c, h.Memory))
	h.MemoryQoS.apply(resources, pod, c)
	resources.HugepageLimits = hugepageLimits(pod, c, h.PageSizes)
	return resources
}

// containerResources returns a container's CPU, memory and OOM score. The pod's limit applies where the container has none
// (KEP-2837).
func (h Host) containerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	cpuLimit := limitOf(pod, c, v1.ResourceCPU)
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = cpuLimit
	}
	memory := limitOf(pod, c, v1.ResourceMemory)
	resources := &runtimeapi.LinuxContainerResources{
		CpuShares:          CPUShares(request.MilliValue()),
		MemoryLimitInBytes: memory.Value(),
		OomScoreAdj:        oomScore(pod, c, h.Memory),
	}
	h.Quota.set(resources, cpuLimit.MilliValue())
	return resources
}

func limitOf(pod *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	if limit, ok := c.Resources.Limits[name]; ok || pod.Spec.Resources == nil {
		return limit
	}
	return pod.Spec.Resources.Limits[name]
}

// podResources returns the sums over a pod's containers, for its sandbox.
func (h Host) podResources(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	return h.Quota.Resources(requests, limits)
}

// Resources converts requests and limits into the kernel's units.
func (q Quota) Resources(requests, limits v1.ResourceList) *runtimeapi.LinuxContainerResources {
	resources := &runtimeapi.LinuxContainerResources{
		CpuShares:          CPUShares(requests.Cpu().MilliValue()),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	q.set(resources, limits.Cpu().MilliValue())
	return resources
}

// oomScore returns a container's oom_score_adj: containers that use more memory than they request
// are killed first.
func oomScore(pod *v1.Pod, c *v1.Container, nodeMemory int64) int64 {
	if pod.Spec.PriorityClassName == nodeCritical {
		return oomGuaranteed
	}
	switch qos.GetPodQOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	if nodeMemory == 0 {
		return oomBestEffort - 1
	}
	shared := sharedMemory(pod)
	score := 1000 - 1000*(memoryRequest(pod, c)+shared)/nodeMemory
	if isSidecar(pod, c) {
		// A sidecar is not killed before the app container that requests least (KEP-753).
		score = min(score, 1000-1000*(leastMemory(pod)+shared)/nodeMemory)
	}
	// Burstable pods are killed after BestEffort pods and before Guaranteed ones.
	return min(max(score, 1000+oomGuaranteed), oomBestEffort-1)
}

// memoryRequest returns what a container requests, with its part of the memory of ResourceClaims.
func memoryRequest(pod *v1.Pod, c *v1.Container) int64 {
	sum := c.Resources.Requests.Memory().Value()
	for _, claim := range pod.Status.NodeAllocatableResourceClaimStatuses {
		if !slices.Contains(claim.Containers, c.Name) {
			continue
		}
		users := int64(len(claim.Containers))
		for _, m := range claim.Mapping {
			if m.Name == v1.ResourceMemory && m.Quantity != nil {
				sum += m.Quantity.Value() / users
			}
		}
		for _, o := range claim.Overhead {
			if o.Name != v1.ResourceMemory {
				continue
			}
			if o.PerPod != nil {
				sum += o.PerPod.Value() / users
			}
			if o.PerContainer != nil {
				sum += o.PerContainer.Value()
			}
		}
	}
	return sum
}

// sharedMemory returns each container's part of what the pod requests beyond its containers (KEP-2837).
func sharedMemory(pod *v1.Pod) int64 {
	if pod.Spec.Resources == nil || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	containers := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{UseDRANodeAllocatableResourceClaimStatus: true})
	rest := pod.Spec.Resources.Requests.Memory().Value() - containers.Memory().Value()
	return max(rest, 0) / int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
}

func isSidecar(pod *v1.Pod, c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways &&
		slices.ContainsFunc(pod.Spec.InitContainers, func(init v1.Container) bool { return init.Name == c.Name })
}

// leastMemory returns the smallest memory request of the app containers.
func leastMemory(pod *v1.Pod) int64 {
	least := pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	for i := range pod.Spec.Containers {
		least = min(least, pod.Spec.Containers[i].Resources.Requests.Memory().Value())
	}
	return least
}
