// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// turns limits the collector's concurrency while other clients make requests: an action needs a turn,
// and a turn rests after each action. Without this limit, client requests would compete with one
// request of each worker for CPU time, for the store's log and for memory.
//
// While no other client makes requests, actions are not limited.
type turns struct {
	clock clock.Clock
	// isBusy reports whether other clients are making requests.
	isBusy func() bool
	// turn has one token for each free turn.
	turn chan struct{}
}

const (
	// concurrency is the number of concurrent actions while other clients make requests. The store
	// batches concurrent writes into one write of its log; a single action would wait for the disk
	// most of the time.
	concurrency = 2
	// restFactor is the length of the rest after an action, as a multiple of the action's duration:
	// the collector slows down on a busy machine.
	restFactor = 2
	// restLimit is the longest rest: a long action may have been waiting rather than working.
	restLimit = 50 * time.Millisecond
	// turnTimeout is the time after which an action no longer waits for its turn, so that an
	// action that hangs, for example in an admission webhook, does not block the others.
	turnTimeout = 2 * time.Second
)

func newTurns(c clock.Clock, isBusy func() bool) *turns {
	t := &turns{clock: c, isBusy: isBusy, turn: make(chan struct{}, concurrency)}
	for range concurrency {
		t.turn <- struct{}{}
	}
	return t
}

// restAfter returns the length of the rest after an action that took a given time.
func restAfter(took time.Duration) time.Duration {
	return min(restFactor*took, restLimit)
}

// take waits until an action may start. Call end when the action has ended: it rests, and then frees
// the turn for the next action.
func (t *turns) take(ctx context.Context) (end func()) {
	if !t.isBusy() || !t.wait(ctx) {
		return func() {}
	}
	if !t.isBusy() { // The clients became idle while this action waited: free the turn without a rest.
		t.turn <- struct{}{}
		return func() {}
	}
	began := t.clock.Now()
	return func() {
		t.rest(ctx, restAfter(t.clock.Since(began)))
		t.turn <- struct{}{}
	}
}

// wait takes a turn, and waits for one if necessary. It returns false after turnTimeout or when ctx
// ends.
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

// rest waits for d, or until ctx ends.
func (t *turns) rest(ctx context.Context, d time.Duration) {
	timer := t.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}
