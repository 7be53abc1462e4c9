// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// turnsPerProcessor is the number of goroutines waiting for each processor at which requests begin to queue.
	turnsPerProcessor = 4
	// turnPeriod is the interval at which a non-empty queue is checked.
	turnPeriod = time.Millisecond
	// maxTurn is the maximum time that a request waits for its turn.
	maxTurn = time.Second
)

// turns makes requests wait while the processors are busy with others.
//
// Go gives each goroutine that can run an equal share of the processors. If hundreds of requests are being processed, an event on
// its way to a watch waits for all of them at each of its dozen steps from goroutine to goroutine, and arrives seconds late. Controllers then work with
// old objects, their writes fail with conflicts, and they try again: more requests. With turns, requests wait here, where they delay nothing else.
//
// Requests that wait for something else, such as a webhook, take no turn. That is why goroutines are counted and not requests.
type turns struct {
	clock    clock.WithTicker
	limit    int
	runnable func() int

	mu sync.Mutex
	// waiting are the requests that wait, the oldest first.
	waiting []*turn
}

// turn is a request that waits.
type turn struct {
	since time.Time
	comes chan struct{}
}

func newTurns(c clock.WithTicker) *turns {
	return &turns{clock: c, limit: turnsPerProcessor * runtime.GOMAXPROCS(0), runnable: runnable}
}

// runnable returns how many goroutines wait for a processor.
func runnable() int {
	sample := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// await returns when it is the turn of a request, after maxTurn at the latest, or when ctx is done.
func (t *turns) await(ctx context.Context) {
	mine, ok := t.join()
	if ok {
		return
	}
	select {
	case <-mine.comes:
	case <-ctx.Done():
	}
}

// join returns a turn to wait for; ok is set if the request need not wait.
func (t *turns) join() (mine *turn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 && t.runnable() < t.limit {
		return nil, true
	}
	mine = &turn{t.clock.Now(), make(chan struct{})}
	t.waiting = append(t.waiting, mine)
	if len(t.waiting) == 1 {
		go t.run()
	}
	return mine, false
}

// run lets requests pass until none waits.
func (t *turns) run() {
	ticker := t.clock.NewTicker(turnPeriod)
	defer ticker.Stop()
	for range ticker.C() {
		if !t.pass() {
			return
		}
	}
}

// pass lets as many requests pass as the processors have room for, and those that have waited for maxTurn. It reports whether others still wait.
func (t *turns) pass() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	room, now := t.limit-t.runnable(), t.clock.Now()
	for len(t.waiting) > 0 && (room > 0 || now.Sub(t.waiting[0].since) >= maxTurn) {
		close(t.waiting[0].comes)
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
		room--
	}
	return len(t.waiting) > 0
}
