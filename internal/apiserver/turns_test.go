// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// queue takes turns where the test decides how many goroutines wait for a processor.
type queue struct {
	*turns
	busy atomic.Int64
	mu   sync.Mutex
	came []int // in any order: those whose turn comes at once run in any order
}

func newQueue(busy int64) *queue {
	q := &queue{}
	q.busy.Store(busy)
	q.turns = &turns{clock: clock.RealClock{}, limit: 4, runnable: func() int { return int(q.busy.Load()) }}
	return q
}

// ask lets a request wait for its turn.
func (q *queue) ask(ctx context.Context, i int) {
	go func() {
		q.await(ctx)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.came = append(q.came, i)
	}()
	synctest.Wait()
}

func (q *queue) expect(t *testing.T, after time.Duration, want ...int) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Sort(q.came); !slices.Equal(q.came, want) {
		t.Errorf("the requests with a turn are %v, want %v", q.came, want)
	}
}

func TestTurns(t *testing.T) {
	t.Run("at once while processors are free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(3)
			q.ask(t.Context(), 1)
			q.ask(t.Context(), 2)
			q.expect(t, 0, 1, 2)
		})
	})
	t.Run("as many as there is room for, the oldest first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(4)
			for i := range 5 {
				q.ask(t.Context(), i)
			}
			q.expect(t, 10*turnPeriod)
			q.busy.Store(2)
			q.expect(t, turnPeriod, 0, 1)
			q.busy.Store(4)
			q.expect(t, 10*turnPeriod, 0, 1)
			q.busy.Store(0)
			q.expect(t, turnPeriod, 0, 1, 2, 3, 4)
			q.ask(t.Context(), 5)
			q.expect(t, 0, 0, 1, 2, 3, 4, 5)
		})
	})
	t.Run("not before those that came first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(4)
			q.ask(t.Context(), 1)
			q.busy.Store(3)
			q.ask(t.Context(), 2)
			q.expect(t, 0)
			q.expect(t, turnPeriod, 1)
			q.expect(t, turnPeriod, 1, 2)
		})
	})
	t.Run("after the maximum time, if no processor is free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(100)
			q.ask(t.Context(), 1)
			time.Sleep(maxTurn / 2)
			q.ask(t.Context(), 2)
			q.expect(t, maxTurn/2+turnPeriod, 1)
			q.expect(t, maxTurn/2, 1, 2)
		})
	})
	t.Run("no longer than its client waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(100)
			ctx, cancel := context.WithCancel(t.Context())
			q.ask(ctx, 1)
			cancel()
			q.expect(t, 0, 1)
			time.Sleep(2 * maxTurn) // the goroutine of the turns ends
		})
	})
}

// TestRunnable: the runtime has the metric.
func TestRunnable(t *testing.T) {
	if n := runnable(); n < 0 || n > 1_000_000 {
		t.Errorf("%d goroutines wait for a processor", n)
	}
}
