// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Starts counts the controllers that have not started yet. When one has, its watches have synced, and
// the shared cache has every kind that it watches. The manager's cache alone is synced earlier,
// because a controller adds its kinds only when it starts.
type Starts struct {
	pending atomic.Int32
}

// Complete reports whether every controller has started.
func (s *Starts) Complete() bool { return s.pending.Load() == 0 }

// expect registers a controller, and returns a function to call when it has started.
func (s *Starts) expect() (started func()) {
	if s == nil {
		return func() {}
	}
	s.pending.Add(1)
	return sync.OnceFunc(func() { s.pending.Add(-1) })
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
