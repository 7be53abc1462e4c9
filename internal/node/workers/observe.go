// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// Observer counts the pods that are admitted and how resizes are answered. *metrics.Metrics implements it.
type Observer interface {
	// PodAdmitted counts a pod that the node admits.
	PodAdmitted(p *v1.Pod)
	// ResizeRequested counts a change of a container's resource.
	ResizeRequested(resource, requirement, operation string)
	// ResizeInfeasible counts a resize that the node can never do.
	ResizeInfeasible(detail string)
	// DeferredResizeAccepted counts a resize that was deferred before, by what made the node try it again.
	DeferredResizeAccepted(trigger string)
	// DeferralEnded counts a resize that is no longer deferred. p is nil if the API no longer has the pod.
	DeferralEnded(resolution string, p *v1.Pod, took time.Duration)
}

// What makes the node try resizes again, in metrics.
const (
	triggerAdded      = "pods_added"
	triggerUpdated    = "pod_updated"
	triggerResized    = "pod_resized"
	triggerTerminated = "pod_terminated"
	triggerRemoved    = "pods_removed"
	triggerPeriodic   = "periodic_retry"
)

// How a deferral ends, in metrics.
const (
	resizeAccepted = "accepted"
	resizeReverted = "reverted"
	podTerminated  = "terminated"
)

// observe counts something, if anything is counted.
func (t *table) observe(count func(Observer)) {
	if t.observer != nil {
		count(t.observer)
	}
}

// observeNew counts a new pod that is admitted and not over.
func (t *table) observeNew(p *v1.Pod, refused *pod.Refusal) {
	if refused == nil && !pod.IsOver(p.Status.Phase) {
		t.observe(func(o Observer) { o.PodAdmitted(p) })
	}
}

// observeDesired counts what follows from a newer pod of the API, which a has taken: the changes that it requests, and the end
// of a deferral.
func (t *table) observeDesired(a *podAllocation, before *v1.Pod, changed bool) {
	if changed && !t.workers[a.desired.UID].Rejected() {
		t.observeRequests(before, a.desired)
	}
	if a.pending {
		return
	}
	resolution := resizeReverted
	if isEnding(a.desired) {
		resolution = podTerminated
	}
	t.endDeferral(a, resolution, a.desired)
}

// triggerOf returns what makes the node try resizes again after a newer pod of the API, which is new if before is nil. A
// change of its status does so if the pod releases resources or ends; otherwise resizes are tried as in a periodic retry.
func (t *table) triggerOf(a *podAllocation, before *v1.Pod, changed bool) string {
	switch {
	case before == nil:
		return triggerAdded
	case changed:
		return triggerUpdated
	case t.defers() && releases(a.allocated.ApplyTo(before), a.allocatedPod()):
		return triggerResized
	case pod.IsOver(a.desired.Status.Phase) && !pod.IsOver(before.Status.Phase):
		return triggerTerminated
	}
	return triggerPeriodic
}

// defers reports whether a resize is deferred. Without one, the trigger is not counted, and need not be exact.
func (t *table) defers() bool {
	for _, a := range t.allocations {
		if !a.deferred.IsZero() {
			return true
		}
	}
	return false
}

// releases reports whether the resources that a pod really has are less than before.
func releases(before, after *v1.Pod) bool {
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	had, has := resourcehelper.PodRequests(before, options), resourcehelper.PodRequests(after, options)
	return has.Cpu().Cmp(*had.Cpu()) < 0 || has.Memory().Cmp(*had.Memory()) < 0
}

// isEnding reports whether a pod is deleted or over, and so is not resized.
func isEnding(p *v1.Pod) bool { return p.DeletionTimestamp != nil || pod.IsOver(p.Status.Phase) }

// observeRequests counts each change of a container's resources.
func (t *table) observeRequests(before, after *v1.Pod) {
	had := pod.AllocationOf(before).Containers
	for name, wants := range pod.AllocationOf(after).Containers {
		for _, resource := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			t.observeRequest(resource, "requests", had[name].Requests[resource], wants.Requests[resource])
			t.observeRequest(resource, "limits", had[name].Limits[resource], wants.Limits[resource])
		}
	}
}

func (t *table) observeRequest(name v1.ResourceName, requirement string, before, after resource.Quantity) {
	if operation := operationOf(before, after); operation != "" {
		t.observe(func(o Observer) { o.ResizeRequested(string(name), requirement, operation) })
	}
}

// operationOf returns how a quantity changes; empty if it does not.
func operationOf(before, after resource.Quantity) string {
	switch order := after.Cmp(before); {
	case order == 0:
		return ""
	case before.IsZero():
		return "add"
	case after.IsZero():
		return "remove"
	case order < 0:
		return "decrease"
	}
	return "increase"
}

// observeRefusal counts a request that is infeasible, once, and notes since when one is deferred.
func (t *table) observeRefusal(a *podAllocation, refused *pod.Refusal) {
	if refused.Reason != v1.PodReasonInfeasible {
		if a.deferred.IsZero() {
			a.deferred = t.parts.Clock.Now()
		}
		return
	}
	a.deferred = time.Time{}
	if !a.infeasible {
		a.infeasible = true
		t.observe(func(o Observer) { o.ResizeInfeasible(refused.Detail) })
	}
}

// observeAllocated counts a resize that was deferred and is accepted.
func (t *table) observeAllocated(a *podAllocation, trigger string) {
	if a.deferred.IsZero() {
		return
	}
	t.observe(func(o Observer) { o.DeferredResizeAccepted(trigger) })
	t.endDeferral(a, resizeAccepted, a.desired)
}

// endDeferral counts the end of a deferral, if the resize is deferred.
func (t *table) endDeferral(a *podAllocation, resolution string, p *v1.Pod) {
	if a.deferred.IsZero() {
		return
	}
	took := t.parts.Clock.Since(a.deferred)
	a.deferred = time.Time{}
	t.observe(func(o Observer) { o.DeferralEnded(resolution, p, took) })
}
