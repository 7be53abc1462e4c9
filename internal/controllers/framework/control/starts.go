// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Starts waits until controllers have started: their watches have synced, so that the shared cache
// has every kind that they watch. The manager's cache alone is synced earlier, because a controller
// adds its kinds only when it starts.
type Starts struct {
	mu      sync.Mutex
	pending int
	// none is closed when pending drops to 0; nil if nothing waits.
	none chan struct{}
}

// Wait waits until every controller has started, or ctx ends.
func (s *Starts) Wait(ctx context.Context) error {
	select {
	case <-s.started():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Starts) started() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.none == nil {
		s.none = make(chan struct{})
		if s.pending == 0 {
			close(s.none)
		}
	}
	return s.none
}

// expect registers a controller, and returns a function to call when it has started. Controllers
// must be registered before Wait is called.
func (s *Starts) expect() (started func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending++
	return sync.OnceFunc(s.done)
}

func (s *Starts) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending--; s.pending == 0 && s.none != nil {
		close(s.none)
	}
}

// queue is the queue of a controller. Workers first read it after the controller's watches have
// synced.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	started func()
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (reconcile.Request, bool) {
	q.started()
	return q.TypedRateLimitingInterface.Get()
}
