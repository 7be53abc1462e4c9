// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/source"
)

// table is the state of a Set, which holds its lock while it calls any of these methods.
type table struct {
	parts       *pod.Parts
	admit       Admit
	checkResize CheckResize
	resources   Resources
	preempt     Preempt         // nil if no pod preempts others
	observer    Observer        // nil if nothing is counted
	ctx         context.Context // of the workers; nil before Start
	spawn       func(w *pod.Worker, uid types.UID)

	workers     map[types.UID]*pod.Worker
	allocations map[types.UID]*podAllocation
	hasSynced   bool // all pods of the node have been seen
	// early are the static pods that were admitted before that, when pods that run may have been unknown.
	early []types.UID
}

func (t *table) update(p *v1.Pod, inRuntime bool) {
	seen := t.parts.Clock.Now()
	a, isNew := t.allocations[p.UID], false
	if a == nil {
		a, isNew = newPodAllocation(t.parts.Host.Layout, p, seen)
	}
	before := a.desired
	changed := a.setDesired(p)
	t.observeDesired(a, before, changed)
	defer t.allocateResizes(t.triggerOf(a, before, changed))
	if t.workers[p.UID] != nil {
		t.allocations[p.UID] = a
		// If the pod waits for a resize, allocateResizes updates its worker with the answer: a
		// status that has observed the new generation contains the answer to the resize.
		if !a.pending || !t.hasSynced {
			t.updateWorker(a)
		}
		return
	}
	allocated := a.allocatedPod()
	var refused *pod.Refusal
	if !inRuntime && p.Status.StartTime == nil && p.DeletionTimestamp == nil {
		refused = t.admitNew(allocated)
	}
	switch {
	case refused != nil:
		t.parts.Recorder.Event(pod.Reference(p), v1.EventTypeWarning, refused.Reason, refused.Message)
	case isNew:
		t.save(a)
	}
	if isAdmitted := !inRuntime && refused == nil; isAdmitted && source.IsStatic(p) && !t.hasSynced {
		t.early = append(t.early, p.UID)
	}
	if t.run(allocated, refused, false, seen) {
		t.allocations[p.UID] = a
		t.observeNew(p, refused)
	}
}

// admitNew admits or refuses a new pod. It is assigned what it requests before the other checks of resources, which must not
// count the same devices differently.
func (t *table) admitNew(p *v1.Pod) *pod.Refusal {
	if refused := t.resources.Assign(t.ctx, p); refused != nil {
		return refused
	}
	refused := t.admit(t.ctx, p, t.active())
	if refused != nil && t.preempt != nil {
		refused = t.preemptFor(p, refused)
	}
	if refused == nil {
		return nil
	}
	if err := t.resources.Release(p.UID); err != nil {
		klog.FromContext(t.ctx).Error(err, "Cannot free what was assigned to a refused pod; the next agent will", "pod", klog.KObj(p))
	}
	return refused
}

func (t *table) deleted(p *v1.Pod) {
	w := t.workers[p.UID]
	if w == nil {
		return
	}
	if a := t.allocations[p.UID]; a != nil {
		a.setDesired(p)
		a.pending = false // a pod that the API no longer has is not resized
		t.endDeferral(a, podTerminated, nil)
		p = a.allocatedPod()
	}
	w.Deleted(p)
}

// removeOrphan starts a worker that removes a pod that only the runtime has.
func (t *table) removeOrphan(seen *runtime.Pod) {
	if t.workers[seen.UID] != nil {
		return
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: seen.Namespace, Name: seen.Name, UID: seen.UID}}
	for _, run := range seen.Containers {
		if !slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == run.Name }) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: run.Name})
		}
	}
	klog.FromContext(t.ctx).Info("Removing a pod that the API no longer has", "pod", klog.KObj(p), "uid", p.UID)
	if t.run(p, nil, true, t.parts.Clock.Now()) && t.parts.Observer != nil {
		t.parts.Observer.OrphanFound()
	}
}

// run starts a worker of a pod that was first seen at a time, unless the agent is stopping.
func (t *table) run(p *v1.Pod, refused *pod.Refusal, isDeleted bool, seen time.Time) (started bool) {
	if t.ctx == nil || t.ctx.Err() != nil {
		return false
	}
	w := pod.NewWorker(t.parts, p, refused, isDeleted)
	w.SeenAt(seen)
	// A static pod has the same UID after a reboot, and starts again then, as nothing else would create it.
	if e := pod.LoadEviction(t.parts.Host.Layout, p.UID); e != nil && (e.BootID == t.parts.BootID || !source.IsStatic(p)) {
		w.Evict(*e) // an earlier agent had begun to
	}
	t.workers[p.UID] = w
	t.spawn(w, p.UID)
	return true
}

// evict evicts a pod, unless it has no worker, is over or was evicted before; in the last case its grace period may become
// shorter. The eviction takes effect even if it cannot be stored: the disk may be full.
func (t *table) evict(uid types.UID, e pod.Eviction) bool {
	w := t.workers[uid]
	if w == nil || pod.IsOver(w.Pod().Status.Phase) {
		return false
	}
	if evicted, _ := w.IsEvicted(); evicted {
		w.Evict(e)
		return false
	}
	e.BootID = t.parts.BootID
	if err := e.Save(t.parts.Host.Layout, uid); err != nil {
		klog.FromContext(t.ctx).Error(err, "Cannot store that a pod is evicted", "pod", klog.KObj(w.Pod()))
	}
	w.Evict(e)
	return true
}

// active returns the pods that count against the node's resources.
func (t *table) active() []*v1.Pod {
	var active []*v1.Pod
	for _, w := range t.workers {
		p := w.Pod()
		if !w.Rejected() && !pod.IsOver(p.Status.Phase) {
			active = append(active, p)
		}
	}
	return active
}

// exists reports whether the API or a manifest has a pod with a worker. Pods that only the runtime has do not exist.
func (t *table) exists(uid types.UID) bool {
	w := t.workers[uid]
	return w != nil && t.allocations[uid] != nil && !w.IsDeleted()
}

// forget drops a worker that has returned. Pending resizes may fit now.
func (t *table) forget(uid types.UID) {
	delete(t.workers, uid)
	delete(t.allocations, uid)
	t.allocateResizes(triggerRemoved)
}
