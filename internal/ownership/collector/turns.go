// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// turns let few of the collector's actions go at a time, with rests between them, while
// others make requests. Nobody waits for a dependent as for an answer, and the others'
// requests would otherwise stand behind as many as there are workers, at the processors, at
// the store's log and in the garbage that Go has to collect.
//
// Without others every action goes at once.
type turns struct {
	clock clock.Clock
	// others tells whether others make requests now.
	others func() bool
	// turn holds what has to be taken before an action and is given back after it.
	turn chan struct{}
}

const (
	// width is how many actions go at a time. The store gathers what comes together into one
	// write of its log: one action alone would wait for the disk most of its time.
	width = 2
	// restShare is how long a turn rests, in times of what its action took. What is slow,
	// because there is much to do, is asked for less.
	restShare = 2
	// restLimit is the longest rest: what takes long need not be work.
	restLimit = 50 * time.Millisecond
	// turnPatience is how long an action waits for its turn. One that hangs, in an admission
	// webhook say, holds the others up for so long and no longer.
	turnPatience = 2 * time.Second
)

func newTurns(c clock.Clock, others func() bool) *turns {
	t := &turns{clock: c, others: others, turn: make(chan struct{}, width)}
	for range width {
		t.turn <- struct{}{}
	}
	return t
}

// restAfter is how long a turn rests that took so long to act.
func restAfter(took time.Duration) time.Duration {
	return min(restShare*took, restLimit)
}

// take waits until an action may begin, and returns what is to be called when it has ended.
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

// wait waits for the turn, and tells whether it came.
func (t *turns) wait(ctx context.Context) bool {
	patience := t.clock.NewTimer(turnPatience)
	defer patience.Stop()
	select {
	case <-t.turn:
		return true
	case <-patience.C():
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
