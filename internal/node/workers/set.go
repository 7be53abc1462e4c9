// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/source"
)

// Admit checks whether the node can run a pod in addition to others. It returns nil if it can.
type Admit func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal

// Preempt decides about a new pod that Admit refused with a reason, beside pods that are not evicted already: it returns the
// pods to evict so that the node can run the pod, or why it is refused.
type Preempt func(ctx context.Context, p *v1.Pod, others []*v1.Pod, refused *pod.Refusal) ([]*v1.Pod, *pod.Refusal)

// Resources assigns CPUs, memory and devices to pods.
type Resources interface {
	// Assign assigns a new pod what it requests, or returns why the node refuses the pod.
	Assign(ctx context.Context, p *v1.Pod) *pod.Refusal
	// Release frees what was assigned to a pod that does not run.
	Release(uid types.UID) error
}

// CheckResize returns why a pod can never be resized in place to what it requests, or nil.
type CheckResize func(desired, allocated *v1.Pod) *pod.Refusal

// Set holds the workers of all pods that the API binds to the node or that the runtime has. All
// methods are safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	table   table
	running sync.WaitGroup
	removed func(types.UID)
}

// New returns a set without workers.
func New(admit Admit, resources Resources, checkResize CheckResize) *Set {
	return &Set{table: table{
		admit: admit, resources: resources, checkResize: checkResize,
		workers: map[types.UID]*pod.Worker{}, allocations: map[types.UID]*podAllocation{},
	}}
}

// Start lets workers run, with these parts, until ctx ends. Before Start, no other method but Pods
// and Has may be called.
func (s *Set) Start(ctx context.Context, parts *pod.Parts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.ctx, s.table.parts = ctx, parts
	s.table.spawn = func(w *pod.Worker, uid types.UID) {
		s.running.Go(func() {
			w.Run(ctx)
			s.forget(uid)
			if s.removed != nil && ctx.Err() == nil {
				s.removed(uid)
			}
		})
	}
}

// OnRemoved sets a function that is called when nothing of a pod is left on the node. It must be set before Start.
func (s *Set) OnRemoved(removed func(types.UID)) { s.removed = removed }

// PreemptWith sets what decides about new pods that are refused. It must be set before Start.
func (s *Set) PreemptWith(preempt Preempt) { s.table.preempt = preempt }

// ObserveWith sets what counts admissions and resizes. It must be set before Start.
func (s *Set) ObserveWith(observer Observer) { s.table.observer = observer }

// Wait returns when all workers have returned or when limit fires.
func (s *Set) Wait(limit <-chan time.Time) {
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-limit:
	}
}

// Update takes the newest pod of the API. If the pod is new, it is admitted or refused; inRuntime
// is set if the runtime had it when the agent started, so that it was admitted before.
func (s *Set) Update(p *v1.Pod, inRuntime bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.update(p, inRuntime)
}

// Deleted notifies the pod's worker that the API no longer has the pod.
func (s *Set) Deleted(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.deleted(p)
}

// RuntimeChanged wakes the pod's worker, if it has one, to read the pod from the runtime.
func (s *Set) RuntimeChanged(uid types.UID) {
	if w := s.worker(uid); w != nil {
		w.RuntimeChanged()
	}
}

// Wake has the pod's worker, if it has one, decide again.
func (s *Set) Wake(uid types.UID) {
	if w := s.worker(uid); w != nil {
		w.Wake()
	}
}

// Evict stops a pod, which then fails. It returns false if the pod has no worker, is over or
// was evicted before.
func (s *Set) Evict(uid types.UID, e pod.Eviction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.evict(uid, e)
}

// IsEvicting reports whether a pod was evicted and still runs, or holds its volumes or cgroup.
func (s *Set) IsEvicting(uid types.UID) bool {
	w := s.worker(uid)
	if w == nil {
		return false
	}
	evicted, released := w.IsEvicted()
	return evicted && !released
}

// Finished reports whether nothing of the pod runs, its volumes are released, and the API has its final phase.
func (s *Set) Finished(uid types.UID) bool {
	w := s.worker(uid)
	return w == nil || w.Finished()
}

// Has reports whether the pod has a worker.
func (s *Set) Has(uid types.UID) bool { return s.worker(uid) != nil }

// Active returns the pods that count against the node's resources, with their newest statuses.
func (s *Set) Active() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.active()
}

// Pods returns all pods with their newest statuses.
func (s *Set) Pods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := make([]*v1.Pod, 0, len(s.table.workers))
	for _, w := range s.table.workers {
		pods = append(pods, w.Pod())
	}
	return pods
}

// VerifiedPods returns the pods that the API or a manifest has, with statuses that this agent has verified.
func (s *Set) VerifiedPods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := make([]*v1.Pod, 0, len(s.table.workers))
	for uid, w := range s.table.workers {
		if s.table.exists(uid) {
			pods = append(pods, w.VerifiedPod())
		}
	}
	return pods
}

// VerifiedPod returns the one with a UID. It reports false if there is none.
func (s *Set) VerifiedPod(uid types.UID) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.table.exists(uid) {
		return nil, false
	}
	return s.table.workers[uid].VerifiedPod(), true
}

// Working is a pod that the Set has a worker for.
type Working struct {
	// Lifecycle is that of the worker.
	Lifecycle string
	// Deleted is set if the API no longer has the pod, and RuntimeOnly if this Set never got it from the API.
	Deleted, RuntimeOnly, Static bool
}

// Working returns the number of pods of each kind.
func (s *Set) Working() map[Working]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[Working]int{}
	for uid, w := range s.table.workers {
		counts[Working{w.Lifecycle(), w.IsDeleted(), s.table.allocations[uid] == nil, source.IsStatic(w.Pod())}]++
	}
	return counts
}

// Relist compares the pods of the runtime with what their workers last saw, and wakes the workers
// of those that differ. A pod that neither has a worker nor is inAPI is an orphan and gets a worker
// that removes it. The caller has passed all pods of the API to Update, so that from now on resizes
// can be allocated.
func (s *Set) Relist(ctx context.Context, view *runtime.Runtime, inAPI func(types.UID) bool) error {
	listed, err := view.List(ctx)
	if err != nil {
		return err
	}
	s.synced()
	for uid, seen := range listed {
		last := view.Last(uid)
		switch {
		case !s.Has(uid) && !inAPI(uid):
			s.RemoveOrphan(seen)
		case last == nil || !seen.Same(last):
			s.RuntimeChanged(uid)
		}
	}
	for _, p := range s.Pods() {
		if last := view.Last(p.UID); listed[p.UID] == nil && last != nil && len(last.Sandboxes)+len(last.Containers) > 0 {
			s.RuntimeChanged(p.UID)
		}
	}
	return nil
}

func (s *Set) worker(uid types.UID) *pod.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.workers[uid]
}

func (s *Set) synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	trigger := triggerPeriodic
	if !s.table.hasSynced {
		s.table.hasSynced, trigger = true, triggerAdded
		s.table.preemptLate()
	}
	s.table.allocateResizes(trigger)
}

// RemoveOrphan starts a worker that removes a pod that only the runtime has.
func (s *Set) RemoveOrphan(seen *runtime.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.removeOrphan(seen)
}

func (s *Set) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.forget(uid)
}
