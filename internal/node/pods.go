// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// pods keeps one worker for each pod that the API binds to the node or the runtime
// still holds.
type pods struct {
	parts *pod.Parts
	admit func(ctx context.Context, p *v1.Pod, others []*v1.Pod) *pod.Refusal

	mu       sync.Mutex
	ctx      context.Context // of the workers; nil before start
	workers  map[types.UID]*pod.Worker
	grants   map[types.UID]*grant
	complete bool // all pods of the node have been seen
	running  sync.WaitGroup
}

func newPods(admit func(context.Context, *v1.Pod, []*v1.Pod) *pod.Refusal) *pods {
	return &pods{admit: admit, workers: map[types.UID]*pod.Worker{}, grants: map[types.UID]*grant{}}
}

// start lets workers run, with these parts, until ctx ends.
func (s *pods) start(ctx context.Context, parts *pod.Parts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.parts = ctx, parts
}

// wait returns when all workers have returned, or at the limit.
func (s *pods) wait(limit <-chan time.Time) {
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

// set takes the pod as the API has it now. held says that the runtime holds it already, so
// that it was admitted before.
func (s *pods) set(p *v1.Pod, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.resizeAll()
	g, isNew := s.grants[p.UID], false
	if g == nil {
		g, isNew = newGrant(s.parts.Host.Layout, p)
	}
	g.want(p)
	if s.workers[p.UID] != nil {
		s.grants[p.UID] = g
		// Who waits is given the pod with the answer: a status that has seen the new
		// generation tells what became of its resize.
		if !g.waiting || !s.complete {
			s.update(g)
		}
		return
	}
	admitted := g.admitted()
	var refused *pod.Refusal
	if !held && p.Status.StartTime == nil && p.DeletionTimestamp == nil {
		refused = s.admit(s.ctx, admitted, s.active())
	}
	switch {
	case refused != nil:
		s.parts.Recorder.Event(pod.Reference(p), v1.EventTypeWarning, refused.Reason, refused.Message)
	case isNew:
		s.keep(s.ctx, g)
	}
	if s.run(admitted, refused, false) {
		s.grants[p.UID] = g
	}
}

// vanish takes that the API no longer has the pod.
func (s *pods) vanish(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[p.UID]
	if w == nil {
		return
	}
	if g := s.grants[p.UID]; g != nil {
		g.want(p)
		p = g.admitted()
	}
	w.Vanish(p)
}

// orphan cleans up a pod which only the runtime knows.
func (s *pods) orphan(seen *runtime.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers[seen.UID] != nil {
		return
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: seen.Namespace, Name: seen.Name, UID: seen.UID}}
	for _, c := range seen.Containers {
		if !hasContainer(p, c.Name) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name})
		}
	}
	klog.FromContext(s.ctx).Info("Removing a pod which is not in the API any more", "pod", klog.KObj(p), "uid", p.UID)
	s.run(p, nil, true)
}

func hasContainer(p *v1.Pod, name string) bool {
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return true
		}
	}
	return false
}

// run starts a worker, unless the agent ends. Its caller holds the lock.
func (s *pods) run(p *v1.Pod, refused *pod.Refusal, gone bool) (started bool) {
	if s.ctx == nil || s.ctx.Err() != nil {
		return false
	}
	w := pod.NewWorker(s.parts, p, refused, gone)
	s.workers[p.UID] = w
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		w.Run(s.ctx)
		s.forget(p.UID)
	}()
	return true
}

// changed wakes the pod's worker to look at the runtime.
func (s *pods) changed(uid types.UID) {
	if w := s.worker(uid); w != nil {
		w.Changed()
	}
}

func (s *pods) worker(uid types.UID) *pod.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[uid]
}

// active returns the pods which count against the node's resources. Its caller holds the lock.
func (s *pods) active() []*v1.Pod {
	var active []*v1.Pod
	for _, w := range s.workers {
		p := w.Pod()
		if !w.Rejected() && !pod.IsOver(p.Status.Phase) {
			active = append(active, p)
		}
	}
	return active
}

// all returns all pods with the newest statuses.
func (s *pods) all() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*v1.Pod, 0, len(s.workers))
	for _, w := range s.workers {
		all = append(all, w.Pod())
	}
	return all
}

// relist compares what the runtime holds with what workers last saw.
func (s *pods) relist(ctx context.Context, known func(types.UID) bool) error {
	held, err := s.parts.Runtime.List(ctx)
	if err != nil {
		return err
	}
	s.known()
	for uid, seen := range held {
		last := s.parts.Runtime.Last(uid)
		switch {
		case s.worker(uid) == nil && !known(uid):
			s.orphan(seen)
		case last == nil || !seen.Same(last):
			s.changed(uid)
		}
	}
	for _, p := range s.all() {
		if last := s.parts.Runtime.Last(p.UID); held[p.UID] == nil && last != nil && len(last.Sandboxes)+len(last.Containers) > 0 {
			s.changed(p.UID)
		}
	}
	return nil
}
