// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// turns limits the collector's concurrency, with rests between actions, while other clients make
// requests. Collection is background work: otherwise client requests would compete with one request
// of each worker for CPU time, for the store's log and for memory.
//
// While no other client makes requests, actions are not limited.
type turns struct {
	clock clock.Clock
	// others reports whether other clients are making requests.
	others func() bool
	// turn holds tokens: an action takes one and returns it.
	turn chan struct{}
}

const (
	// width is the number of concurrent actions. The store batches concurrent writes into one
	// write of its log; a single action would wait for the disk most of the time.
	width = 2
	// restShare is the rest after an action as a multiple of the action's duration, so that the
	// collector slows down on a busy machine.
	restShare = 2
	// restLimit is the longest rest: a long action may have been waiting rather than working.
	restLimit = 50 * time.Millisecond
	// turnTimeout is the time after which an action no longer waits for its turn, so that an
	// action that hangs, for example in an admission webhook, does not block the others.
	turnTimeout = 2 * time.Second
)

func newTurns(c clock.Clock, others func() bool) *turns {
	t := &turns{clock: c, others: others, turn: make(chan struct{}, width)}
	for range width {
		t.turn <- struct{}{}
	}
	return t
}

// restAfter returns the rest after an action that took a given time.
func restAfter(took time.Duration) time.Duration {
	return min(restShare*took, restLimit)
}

// take waits until an action may start. It returns a function to call when the action has ended.
func (t *turns) take(ctx context.Context) (end func()) {
	if !t.others() || !t.wait(ctx) {
		return func() {}
	}
	if !t.others() {
		t.turn <- struct{}{}
		return func() {}
	}
	began := t.clock.Now()
	return func() {
		t.rest(ctx, restAfter(t.clock.Since(began)))
		t.turn <- struct{}{}
	}
}

// wait waits for a turn. It returns false after turnTimeout or when ctx ends.
func (t *turns) wait(ctx context.Context) bool {
	timeout := t.clock.NewTimer(turnTimeout)
	defer timeout.Stop()
	select {
	case <-t.turn:
		return true
	case <-timeout.C():
	case <-ctx.Done():
	}
	return false
}

func (t *turns) rest(ctx context.Context, d time.Duration) {
	timer := t.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}
