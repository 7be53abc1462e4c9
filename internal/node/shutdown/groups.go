// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// systemCritical is the priority of system-cluster-critical, from which on pods are critical.
const systemCritical = 2_000_000_000

// period is the time that pods from a priority on, up to the next period's, have to end.
type period struct {
	priority int32
	limit    time.Duration
}

// periodsOf returns the periods of a configuration in the order in which pods end, the least important first; none if a
// shutdown is not graceful.
func periodsOf(c *kubeletv1beta1.KubeletConfiguration) []period {
	var periods []period
	for _, p := range c.ShutdownGracePeriodByPodPriority {
		periods = append(periods, period{p.Priority, time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	if len(periods) == 0 && total > 0 {
		periods = []period{{0, (total - critical).Truncate(time.Second)}, {systemCritical, critical.Truncate(time.Second)}}
	}
	slices.SortStableFunc(periods, func(a, b period) int { return cmp.Compare(a.priority, b.priority) })
	return periods
}

// totalOf returns the time that all periods take together.
func totalOf(periods []period) (total time.Duration) {
	for _, p := range periods {
		total += p.limit
	}
	return total
}

// groupsOf returns the pods of each period. A pod belongs to the last period that begins at or below its priority, or to
// the first.
func groupsOf(periods []period, pods []*v1.Pod) [][]*v1.Pod {
	groups := make([][]*v1.Pod, len(periods))
	for _, p := range pods {
		priority := int32(0)
		if p.Spec.Priority != nil {
			priority = *p.Spec.Priority
		}
		at := 0
		for i := range periods {
			if periods[i].priority <= priority {
				at = i
			}
		}
		groups[at] = append(groups[at], p)
	}
	return groups
}
