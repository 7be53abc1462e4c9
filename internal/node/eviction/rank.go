// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
)

// Rank returns pods in the order in which they are evicted for a signal: those that use more of the resource than they
// request, by priority, then by how much more they use. No pod requests process IDs: only priority and usage count
// there. A pod that could not be measured comes before those that could.
func Rank(s Signal, l Layout, pods []*v1.Pod, usages Usages) []*v1.Pod {
	ranked := slices.Clone(pods)
	excess := map[*v1.Pod]int64{}
	for _, pod := range pods {
		if usage, ok := usages[pod.UID]; ok {
			excess[pod] = excessOf(s.resource(), pod, usage, l.partsOf(s))
		}
	}
	slices.SortStableFunc(ranked, func(a, b *v1.Pod) int {
		over, more := 0, 0
		excessA, okA := excess[a]
		excessB, okB := excess[b]
		if okA && okB {
			over, more = first(excessA > 0, excessB > 0), cmp.Compare(excessB, excessA)
		} else {
			over = first(!okA, !okB)
			more = over
		}
		if s.resource() == pids {
			over = 0
		}
		return cmp.Or(over, cmp.Compare(corehelpers.PodPriority(a), corehelpers.PodPriority(b)), more)
	})
	return ranked
}

// excessOf returns how much more of a resource a pod uses than it requests, which may be negative.
func excessOf(name v1.ResourceName, pod *v1.Pod, usage Usage, of parts) int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	switch name {
	case v1.ResourceMemory:
		return valueOf(usage.Memory) - requests.Memory().Value()
	case v1.ResourceEphemeralStorage:
		return usage.disk(pod, of).Bytes - requests.StorageEphemeral().Value()
	case inodes:
		return usage.disk(pod, of).Inodes
	}
	return valueOf(usage.Processes)
}

func valueOf(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
