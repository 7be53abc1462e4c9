// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// ResizeRules are the facts of a node that make some resizes impossible.
type ResizeRules struct {
	// StaticCPU and StaticMemory are set if pods of the class Guaranteed may have CPUs or memory of their own.
	StaticCPU, StaticMemory bool
	// Swaps reports whether a container may use swap.
	Swaps func(p *v1.Pod, c *v1.Container) bool
}

// CheckResize returns why a pod can never be resized in place from what it is allocated to what it requests, or nil.
func (r ResizeRules) CheckResize(desired, allocated *v1.Pod) *pod.Refusal {
	guaranteed := qos.GetPodQOS(desired) == v1.PodQOSGuaranteed
	switch {
	case r.resizesSwapping(desired, allocated):
		return infeasible("In-place resize of containers with swap is not supported.")
	case guaranteed && r.StaticCPU && requestsDiffer(desired, allocated, v1.ResourceCPU):
		return infeasible(fmt.Sprintf("Resize is infeasible for Guaranteed Pods alongside CPU Manager policy %q", "static"))
	case guaranteed && r.StaticMemory && requestsDiffer(desired, allocated, v1.ResourceMemory):
		return infeasible(fmt.Sprintf("Resize is infeasible for Guaranteed Pods alongside Memory Manager policy %q", "Static"))
	}
	return nil
}

func infeasible(message string) *pod.Refusal {
	return &pod.Refusal{Reason: v1.PodReasonInfeasible, Message: message}
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

func requestsDiffer(desired, allocated *v1.Pod, name v1.ResourceName) bool {
	for want, have := range pairs(desired, allocated) {
		if !want.Resources.Requests[name].Equal(have.Resources.Requests[name]) {
			return true
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
