// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package criconfig

import (
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"
)

// The files of cgroup v2 by which the kernel reclaims memory: never below min, below low only if nothing else is left, and
// always above high, which slows the processes down.
const (
	memoryMin  = "memory.min"
	memoryLow  = "memory.low"
	memoryHigh = "memory.high"
)

// MemoryQoS protects and throttles the memory of pods (KEP-2570). The zero value does neither, as with cgroup v1.
type MemoryQoS struct {
	// Unified is set if there are cgroups of version 2, and Enabled if the feature is not disabled.
	Unified, Enabled bool
	// Reserve protects what pods request (memoryReservationPolicy: TieredReservation).
	Reserve bool
	// Factor is memoryThrottlingFactor; 0 throttles nothing.
	Factor   float64
	PageSize int64
	// Allocatable returns the node's allocatable memory, the limit of containers without one; 0 if it is unknown.
	Allocatable func() int64
}

// container returns the settings of a container.
func (q MemoryQoS) container(pod *v1.Pod, c *v1.Container) map[string]string {
	switch {
	case !q.Unified:
		return nil
	case !q.Enabled: // an earlier agent may have set it
		return map[string]string{memoryHigh: "max"}
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	settings := map[string]string{memoryMin: "0", memoryLow: "0"}
	if q.Reserve && request != 0 {
		settings = protect(qos.GetPodQOS(pod), request)
	}
	if limit == 0 && pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return settings // the pod's cgroup is throttled
	}
	if limit == 0 && q.Allocatable != nil {
		limit = q.Allocatable()
	}
	q.throttle(settings, request, limit)
	return settings
}

// apply adds the settings of a container.
func (q MemoryQoS) apply(r *runtimeapi.LinuxContainerResources, pod *v1.Pod, c *v1.Container) {
	settings := q.container(pod, c)
	if r.Unified == nil {
		r.Unified = settings
		return
	}
	maps.Copy(r.Unified, settings)
}

// Pod returns the settings of a pod's cgroup. Its containers are throttled by their own, unless the limit is the pod's.
func (q MemoryQoS) Pod(pod *v1.Pod) map[string]string {
	if !q.Unified || !q.Enabled {
		return nil
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	request := requests.Memory().Value()
	settings := map[string]string{}
	if q.Reserve && request > 0 {
		settings = protect(qos.GetPodQOS(pod), request)
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) && IsLimited(pod, v1.ResourceMemory) {
		limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
		q.throttle(settings, request, limits.Memory().Value())
	}
	return settings
}

// Classes returns the settings of the cgroup of all pods, and of that of Burstable pods, by what the pods of a class request
// together. A pod is protected by as much as the cgroups above it are.
func (q MemoryQoS) Classes(guaranteedBytes, burstableBytes int64) (pods, burstable map[string]string) {
	if !q.Unified {
		return nil, nil
	}
	if !q.Protects() {
		guaranteedBytes, burstableBytes = 0, 0
	}
	return map[string]string{memoryMin: decimal(guaranteedBytes + burstableBytes), memoryLow: decimal(burstableBytes)},
		map[string]string{memoryLow: decimal(burstableBytes)}
}

// Protects reports whether the memory that pods request is protected.
func (q MemoryQoS) Protects() bool { return q.Unified && q.Enabled && q.Reserve }

// protect returns the protection of what a container or pod requests.
func protect(class v1.PodQOSClass, request int64) map[string]string {
	if class == v1.PodQOSGuaranteed {
		return map[string]string{memoryMin: decimal(request)}
	}
	return map[string]string{memoryLow: decimal(request)}
}

// throttle sets memory.high between request and limit, at a multiple of the page size. What requests all of its limit is not
// throttled.
func (q MemoryQoS) throttle(settings map[string]string, request, limit int64) {
	if q.Factor == 0 || limit == 0 || request == limit {
		return
	}
	high := int64(float64(request)+float64(limit-request)*q.Factor) / q.PageSize * q.PageSize
	if high > request {
		settings[memoryHigh] = decimal(high)
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
