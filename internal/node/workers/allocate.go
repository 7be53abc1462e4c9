// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// podAllocation is what one pod requests and what it is allocated (KEP-1287).
type podAllocation struct {
	desired   *v1.Pod // as the API has it
	allocated pod.Allocation
	resize    pod.Resize
	// pending is set while allocated is not what the pod requests.
	pending bool
	// reported is the generation for which the event ResizeDeferred or ResizeInfeasible was recorded.
	reported int64
	// deferred is since when the node defers the resize; zero if it does not. infeasible is set once the node has found that it
	// can never do what the pod requests.
	deferred   time.Time
	infeasible bool
}

// newPodAllocation returns the allocation of a pod that the agent sees for the first time, now: what an
// earlier agent allocated or, for a new pod, what the pod requests.
func newPodAllocation(layout rootdir.Layout, p *v1.Pod, now time.Time) (a *podAllocation, isNew bool) {
	allocated, found := pod.LoadAllocation(layout, p.UID)
	if !found {
		allocated = pod.AllocationOf(p)
	}
	a = &podAllocation{allocated: allocated}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending {
			a.reported = c.ObservedGeneration
			if c.Reason == v1.PodReasonDeferred {
				a.deferred = now
			}
		}
	}
	return a, !found
}

// allocatedPod returns the pod with the allocated resources in its spec.
func (a *podAllocation) allocatedPod() *v1.Pod { return a.allocated.ApplyTo(a.desired) }

// setDesired takes the newest pod of the API, and reports whether a known pod requests other resources than before.
func (a *podAllocation) setDesired(p *v1.Pod) (changed bool) {
	requested := pod.AllocationOf(p)
	changed = a.desired != nil && !requested.Equal(pod.AllocationOf(a.desired))
	if changed {
		a.infeasible = false
	}
	a.desired = p
	a.pending = !isEnding(p) && !a.allocated.Equal(requested)
	if !a.pending {
		a.resize.Pending = nil
	}
	return changed
}

// grows reports whether the pod requests more CPU or memory than it is allocated.
func (a *podAllocation) grows() bool {
	have := resourcehelper.PodRequests(a.allocatedPod(), resourcehelper.PodResourcesOptions{})
	want := resourcehelper.PodRequests(a.desired, resourcehelper.PodResourcesOptions{})
	return want.Cpu().Cmp(*have.Cpu()) > 0 || want.Memory().Cmp(*have.Memory()) > 0
}

// allocateResizes allocates the pending resizes that fit. Before all pods of the node have been
// seen, it does nothing, because it cannot know what fits. trigger is why it tries them.
func (t *table) allocateResizes(trigger string) {
	if !t.hasSynced || t.ctx.Err() != nil {
		return
	}
	var pending []*podAllocation
	for _, a := range t.allocations {
		if a.pending {
			pending = append(pending, a)
		}
	}
	slices.SortFunc(pending, compareResizes)
	for _, a := range pending {
		t.tryResize(a, trigger)
	}
}

// compareResizes orders pending resizes as the kubelet does: those that release resources first,
// then by priority, QoS class and age.
func compareResizes(a, b *podAllocation) int {
	return cmp.Or(
		compareBool(a.grows(), b.grows()),
		cmp.Compare(priority(b.desired), priority(a.desired)),
		compareBool(qos.GetPodQOS(a.desired) != v1.PodQOSGuaranteed, qos.GetPodQOS(b.desired) != v1.PodQOSGuaranteed),
		pendingSince(a.desired).Compare(pendingSince(b.desired)),
		cmp.Compare(a.desired.UID, b.desired.UID),
	)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// pendingSince returns when the pod's resize began to wait.
func pendingSince(p *v1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending {
			return c.LastTransitionTime.Time
		}
	}
	return p.CreationTimestamp.Time
}

// tryResize allocates what the pod requests if it fits, else defers the resize, or refuses it if it can never be done. An
// allocation is stored before it takes effect.
func (t *table) tryResize(a *podAllocation, trigger string) {
	p := a.desired
	others := slices.DeleteFunc(t.active(), func(other *v1.Pod) bool { return other.UID == p.UID })
	event, refused := "ResizeInfeasible", t.checkResize(p, a.allocatedPod())
	if refused == nil {
		event, refused = "ResizeDeferred", t.admit(t.ctx, p, others)
	}
	if refused != nil {
		t.observeRefusal(a, refused)
		if a.reported != p.Generation {
			a.reported = p.Generation
			t.parts.Recorder.Event(pod.Reference(p), v1.EventTypeWarning, event,
				pod.ResizeMessage(refused.Reason, p, p.Generation, refused.Message))
		}
		a.resize.Pending = refused
		t.updateWorker(a)
		return
	}
	allocated := pod.AllocationOf(p)
	if err := allocated.Save(t.parts.Host.Layout, p.UID); err != nil {
		klog.FromContext(t.ctx).Error(err, "Cannot resize the pod, will retry", "pod", klog.KObj(p))
		t.updateWorker(a) // with whatever else changed
		return
	}
	a.allocated, a.pending = allocated, false
	a.resize = pod.Resize{Allocated: p.Generation}
	t.observeAllocated(a, trigger)
	t.parts.Recorder.Event(pod.Reference(p), v1.EventTypeNormal, "ResizeStarted", pod.ResizeMessage("started", p, p.Generation, ""))
	t.updateWorker(a)
}

// updateWorker gives the pod's worker the pod with its allocated resources.
func (t *table) updateWorker(a *podAllocation) {
	if w := t.workers[a.desired.UID]; w != nil {
		w.Update(a.allocatedPod(), a.resize)
	}
}

// save stores the resources with which a new pod was admitted. Otherwise the next agent would treat
// those in the spec as allocated, although they may have changed since.
func (t *table) save(a *podAllocation) {
	if err := a.allocated.Save(t.parts.Host.Layout, a.desired.UID); err != nil {
		klog.FromContext(t.ctx).Error(err, "Cannot store a pod's allocated resources", "pod", klog.KObj(a.desired))
	}
}
