// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// newTestSeats returns one seat.
func newTestSeats() (*seats, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := newSeats(c)
	s.free = 1
	return s, c
}

func (s *seats) mustTake(t *testing.T) (leave func()) {
	t.Helper()
	leave, err := s.take(context.Background(), started)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

// isTaken reports whether a write that waits has its seat.
func isTaken(turn chan struct{}) bool {
	select {
	case <-turn:
		return true
	default:
		return false
	}
}

func TestSeatsAreGivenByUrgency(t *testing.T) {
	s, _ := newTestSeats()
	leave := s.mustTake(t)
	first, second, urgent := s.enqueue(started), s.enqueue(started), s.enqueue(placed)
	for _, next := range []struct {
		name string
		turn chan struct{}
	}{{"the urgent write", urgent}, {"the first write", first}, {"the second write", second}} {
		if isTaken(next.turn) {
			t.Errorf("%s has a seat too early", next.name)
		}
		leave()
		if !isTaken(next.turn) {
			t.Errorf("%s has no seat", next.name)
		}
		leave = s.leave
	}
	leave()
	if s.free != 1 {
		t.Errorf("%d seats are free at the end", s.free)
	}
}

func TestSlowWriteLosesItsSeat(t *testing.T) {
	s, c := newTestSeats()
	leave := s.mustTake(t)
	next := s.enqueue(started)
	c.Step(seatTime)
	if !isTaken(next) {
		t.Error("a write has its seat for longer than seatTime")
	}
	leave()
	if s.free != 0 {
		t.Error("a seat was left twice")
	}
}

func TestWriteThatIsGivenUpWhileItWaits(t *testing.T) {
	s, _ := newTestSeats()
	leave := s.mustTake(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.take(ctx, placed); !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v", err)
	}
	if len(s.waiting[placed]) != 0 {
		t.Error("it still waits")
	}
	// Its turn comes while it gives up.
	turn := s.enqueue(placed)
	leave()
	s.withdraw(turn, placed)
	if s.free != 1 {
		t.Errorf("%d seats are free at the end", s.free)
	}
}
