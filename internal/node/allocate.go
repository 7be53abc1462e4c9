// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// grant is what one pod wants of the node and what it has (KEP-1287).
type grant struct {
	wanted    *v1.Pod // as the API has it
	allocated pod.Allocation
	resize    pod.Resize
	// waiting says that it has not what it wants.
	waiting bool
	// toldOf is the generation of which somebody was told that it has to wait.
	toldOf int64
}

// admitted is the pod with what is allocated to it.
func (g *grant) admitted() *v1.Pod { return g.allocated.In(g.wanted) }

// want takes the pod as the API has it now.
func (g *grant) want(p *v1.Pod) {
	g.wanted = p
	g.waiting = p.DeletionTimestamp == nil && !pod.IsOver(p.Status.Phase) && !g.allocated.Same(pod.AllocationOf(p))
	if !g.waiting {
		g.resize.Pending = nil
	}
}

// newGrant is the grant of a pod which the agent sees for the first time: what an agent before it
// allocated or, for a new pod, what it asks for.
func newGrant(layout pod.Layout, p *v1.Pod) (g *grant, isNew bool) {
	allocated, known := layout.LoadAllocation(p.UID)
	if !known {
		allocated = pod.AllocationOf(p)
	}
	g = &grant{allocated: allocated}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending {
			g.toldOf = c.ObservedGeneration
		}
	}
	return g, !known
}

// resizeAll grants the resizes for which there is room now. Before all pods are known there is no
// telling. Its caller holds the lock.
func (s *pods) resizeAll() {
	if !s.complete || s.ctx.Err() != nil {
		return
	}
	var waiting []*grant
	for _, g := range s.grants {
		if g.waiting {
			waiting = append(waiting, g)
		}
	}
	slices.SortFunc(waiting, order)
	for _, g := range waiting {
		s.tryResize(g)
	}
}

// order is that of the kubelet: who gives back first, then by priority, quality of service, and age.
func order(a, b *grant) int {
	return cmp.Or(
		cmp.Compare(rank(a.grows()), rank(b.grows())),
		cmp.Compare(priority(b.wanted), priority(a.wanted)),
		cmp.Compare(rank(qos.GetPodQOS(a.wanted) != v1.PodQOSGuaranteed), rank(qos.GetPodQOS(b.wanted) != v1.PodQOSGuaranteed)),
		pendingSince(a.wanted).Compare(pendingSince(b.wanted)),
		cmp.Compare(a.wanted.UID, b.wanted.UID),
	)
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// pendingSince is when the pod began to wait.
func pendingSince(p *v1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending {
			return c.LastTransitionTime.Time
		}
	}
	return p.CreationTimestamp.Time
}

// grows says whether the pod asks for more CPU or memory than it has.
func (g *grant) grows() bool {
	have := resourcehelper.PodRequests(g.admitted(), resourcehelper.PodResourcesOptions{})
	want := resourcehelper.PodRequests(g.wanted, resourcehelper.PodResourcesOptions{})
	return want.Cpu().Cmp(*have.Cpu()) > 0 || want.Memory().Cmp(*have.Memory()) > 0
}

// tryResize allocates what the pod wants if the node has it, else says why not. The allocation is
// kept before it takes effect.
func (s *pods) tryResize(g *grant) {
	p := g.wanted
	others := slices.DeleteFunc(s.active(), func(other *v1.Pod) bool { return other.UID == p.UID })
	refused := s.admit(s.ctx, p, others)
	if refused != nil {
		if g.toldOf != p.Generation {
			g.toldOf = p.Generation
			s.parts.Recorder.Event(pod.Reference(p), v1.EventTypeWarning, "ResizeDeferred",
				pod.ResizeMessage(refused.Reason, p, p.Generation, refused.Message))
		}
		g.resize.Pending = refused
		s.update(g)
		return
	}
	want := pod.AllocationOf(p)
	if err := s.parts.Host.Layout.SaveAllocation(p.UID, want); err != nil {
		klog.FromContext(s.ctx).Error(err, "Cannot resize a pod, will retry", "pod", klog.KObj(p))
		s.update(g) // what else is new of it
		return
	}
	g.allocated, g.waiting = want, false
	g.resize = pod.Resize{Allocated: p.Generation}
	s.parts.Recorder.Event(pod.Reference(p), v1.EventTypeNormal, "ResizeStarted", pod.ResizeMessage("started", p, p.Generation, ""))
	s.update(g)
}

// update gives the pod's worker what it has now.
func (s *pods) update(g *grant) {
	if w := s.workers[g.wanted.UID]; w != nil {
		w.Update(g.admitted(), g.resize)
	}
}

// known says that all pods of the node have been seen: from now on, there is telling what fits.
func (s *pods) known() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	s.resizeAll()
}

// forget drops a worker that returned; others may have been waiting for its resources.
func (s *pods) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, uid)
	delete(s.grants, uid)
	s.resizeAll()
}

// keep notes what a new pod was admitted with. Without the note the next agent would take the
// spec it finds for what is allocated.
func (s *pods) keep(ctx context.Context, g *grant) {
	if err := s.parts.Host.Layout.SaveAllocation(g.wanted.UID, g.allocated); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot note a pod's resources", "pod", klog.KObj(g.wanted))
	}
}
