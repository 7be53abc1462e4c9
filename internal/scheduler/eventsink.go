// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// patientSink writes the events of scheduled pods. While many pods are scheduled, the events wait: such an event is one of
// the four writes that a pod costs until it runs, and the other three are urgent.
type patientSink struct {
	events.EventSink
	clock clock.WithTicker
	// wait has an element if events may wait and run does not know it.
	wait chan struct{}

	mu sync.Mutex
	// arrivals are the times of the latest events, a ring buffer; next is the index of the oldest.
	arrivals [burstSize]time.Time
	next     int
	waiting  []waitingEvent // the oldest first
}

func newPatientSink(to events.EventSink, c clock.WithTicker) *patientSink {
	return &patientSink{EventSink: to, clock: c, wait: make(chan struct{}, 1)}
}

// waitingEvent is an event that may be written when its channel is closed.
type waitingEvent struct {
	since time.Time
	turn  chan struct{}
}

// Pods are scheduled in a burst if this many are within this time, 40 a second.
const (
	burstSize   = 10
	burstWindow = 250 * time.Millisecond
)

// reasonScheduled is the reason of the event of a pod that got its node, as upstream's.
const reasonScheduled = "Scheduled"

// The limits of the wait. Events that would be too many are written at once.
const (
	longestWait = 10 * time.Second
	mostWaiting = 5000
)

// After a burst, events are written at 1,000 a second.
const (
	turnPeriod    = 50 * time.Millisecond
	turnsInPeriod = 50
)

// Create implements events.EventSink. The recorder calls it in a goroutine for each event. An event that waits when the
// context ends is lost, without an error, which the recorder would log for each.
func (s *patientSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if event.Reason == reasonScheduled {
		select {
		case <-s.arrived():
		case <-ctx.Done():
			return event, nil
		}
	}
	return s.EventSink.Create(ctx, event)
}

// arrived returns a channel that is closed when the event may be written.
func (s *patientSink) arrived() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.arrivals[s.next] = now
	s.next = (s.next + 1) % burstSize
	event := waitingEvent{now, make(chan struct{})}
	if !s.isBurst(now) && len(s.waiting) == 0 || len(s.waiting) == mostWaiting {
		close(event.turn)
		return event.turn
	}
	s.waiting = append(s.waiting, event)
	select {
	case s.wait <- struct{}{}:
	default:
	}
	return event.turn
}

func (s *patientSink) isBurst(now time.Time) bool {
	return now.Sub(s.arrivals[s.next]) <= burstWindow
}

// run lets events be written until the context is done.
func (s *patientSink) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wait:
		}
		s.runUntilNoneWaits(ctx)
	}
}

func (s *patientSink) runUntilNoneWaits(ctx context.Context) {
	ticker := s.clock.NewTicker(turnPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if s.giveTurns() == 0 {
			return
		}
	}
}

// giveTurns lets the next events be written: after a burst, or because they have waited long. It returns how many still
// wait.
func (s *patientSink) giveTurns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	given := 0
	for _, event := range s.waiting[:min(turnsInPeriod, len(s.waiting))] {
		if s.isBurst(now) && now.Sub(event.since) < longestWait {
			break
		}
		close(event.turn)
		given++
	}
	s.waiting = s.waiting[given:]
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
	return len(s.waiting)
}
