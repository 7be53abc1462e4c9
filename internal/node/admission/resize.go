// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// ResizeRules are the facts of a node that make some resizes impossible.
type ResizeRules struct {
	// Swaps reports whether a container may use swap.
	Swaps func(p *v1.Pod, c *v1.Container) bool
}

// CheckResize returns why a pod can never be resized in place from what it is allocated to what it requests, or nil.
func (r ResizeRules) CheckResize(desired, allocated *v1.Pod) *pod.Refusal {
	if r.resizesSwapping(desired, allocated) {
		return &pod.Refusal{Reason: v1.PodReasonInfeasible, Message: "In-place resize of containers with swap is not supported.", Detail: "swap_limitation"}
	}
	return nil
}

// resizesSwapping reports whether the memory request of a container that may swap, and does not restart for it, changes.
func (r ResizeRules) resizesSwapping(desired, allocated *v1.Pod) bool {
	for want, have := range pairs(desired, allocated) {
		if want.Resources.Requests.Memory().Equal(*have.Resources.Requests.Memory()) || restartsForMemory(have) {
			continue
		}
		if r.Swaps(desired, want) || r.Swaps(allocated, have) {
			return true
		}
	}
	return false
}

func restartsForMemory(c *v1.Container) bool {
	for _, policy := range c.ResizePolicy {
		if policy.ResourceName == v1.ResourceMemory {
			return policy.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}

// pairs yields each container as it is requested and as it is allocated.
func pairs(desired, allocated *v1.Pod) func(yield func(want, have *v1.Container) bool) {
	return func(yield func(want, have *v1.Container) bool) {
		for i := range desired.Spec.InitContainers {
			if !yield(&desired.Spec.InitContainers[i], &allocated.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range desired.Spec.Containers {
			if !yield(&desired.Spec.Containers[i], &allocated.Spec.Containers[i]) {
				return
			}
		}
	}
}
