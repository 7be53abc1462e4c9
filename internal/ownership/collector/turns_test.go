// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestRestFollowsTheAction(t *testing.T) {
	tests := []struct{ took, want time.Duration }{
		{took: 0, want: 0},
		{took: time.Millisecond, want: restFactor * time.Millisecond},
		{took: 10 * time.Millisecond, want: restFactor * 10 * time.Millisecond},
		{took: time.Minute, want: restLimit},
	}
	for _, test := range tests {
		if got := restAfter(test.took); got != test.want {
			t.Errorf("after %v: got %v, want %v", test.took, got, test.want)
		}
	}
}

// turn returns a channel that is closed when a background action gets its turn.
func turn(t *turns) (begun chan func()) {
	begun = make(chan func(), 1)
	go func() { begun <- t.take(context.Background()) }()
	return begun
}

func begins(t *testing.T, begun chan func()) (end func()) {
	t.Helper()
	select {
	case end = <-begun:
	case <-time.After(10 * time.Second):
		t.Fatal("the action does not begin")
	}
	return end
}

func waits(t *testing.T, clock *clocktesting.FakeClock, timers int, begun chan func()) {
	t.Helper()
	eventually(t, "waiting", func() bool { return clock.Waiters() == timers })
	select {
	case <-begun:
		t.Fatal("the action begins before its turn")
	default:
	}
}

// newTestTurns returns turns with a fake clock, all but one taken. Other clients have requests in
// progress while busy is true.
func newTestTurns(busy *atomic.Bool) (*turns, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
	t := newTurns(clock, busy.Load)
	for range concurrency - 1 {
		<-t.turn
	}
	return t, clock
}

func TestConcurrencyIsLimited(t *testing.T) {
	turns := newTurns(clocktesting.NewFakeClock(time.Now()), func() bool { return true })
	for range concurrency {
		begins(t, turn(turns))
	}
	select {
	case <-turn(turns):
		t.Fatal("more actions begin than there are turns")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestNoLimitWhileIdle(t *testing.T) {
	var busy atomic.Bool
	turns, _ := newTestTurns(&busy)
	for range 48 {
		begins(t, turn(turns)) // and no action ends
	}
}

func TestActionsRestWhileBusy(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	turns, clock := newTestTurns(&busy)

	endFirst := begins(t, turn(turns))
	second := turn(turns)
	waits(t, clock, 1, second)
	clock.Step(time.Millisecond)
	go endFirst()
	waits(t, clock, 2, second) // the first action pauses
	clock.Step(restFactor*time.Millisecond - 1)
	waits(t, clock, 2, second)
	clock.Step(1)
	endSecond := begins(t, second)

	// A third action waits. When the other clients are idle, it begins, and a fourth one does not
	// wait.
	third, fourth := turn(turns), turn(turns)
	waits(t, clock, 2, third)
	busy.Store(false)
	go endSecond()
	waits(t, clock, 3, third)
	clock.Step(0) // the second action took no time and pauses as long
	begins(t, third)
	begins(t, fourth)
	begins(t, turn(turns))
}

// TestHangingAction: an action that never ends does not block the others.
func TestHangingAction(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	turns, clock := newTestTurns(&busy)
	begins(t, turn(turns))
	next := turn(turns)
	waits(t, clock, 1, next)
	clock.Step(turnTimeout - 1)
	waits(t, clock, 1, next)
	clock.Step(1)
	begins(t, next)()
}

func TestWaitingEndsWithTheCollector(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	turns, clock := newTestTurns(&busy)
	begins(t, turn(turns))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		turns.take(ctx)()
		close(done)
	}()
	eventually(t, "waiting", clock.HasWaiters)
	cancel()
	<-done
}

// TestCollectsUnderLoad collects while other clients send requests all the time.
func TestCollectsUnderLoad(t *testing.T) {
	a := newAPI(configMaps, secrets)
	owner := a.create(configMaps, "default", "owner")
	for i := range 100 {
		a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
	}
	start(t, a, func(o *Options) { o.Busy = func() bool { return true } })
	remove(t, a, owner, metav1.DeletePropagationBackground)
	eventually(t, "dependents gone", func() bool { return a.count(secrets) == 0 })
	if got := a.requested("get"); got != 0 {
		t.Errorf("%d gets, want none", got)
	}
}
