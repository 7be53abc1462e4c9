// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// recordingSink records when events are written.
type recordingSink struct {
	events.EventSink
	mu      sync.Mutex
	written map[string]time.Duration
	began   time.Time
}

func (s *recordingSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[event.Name] = time.Since(s.began)
	return event, nil
}

// sinks returns a sink that runs, and what it writes to.
func sinks(t *testing.T) (*patientSink, *recordingSink) {
	to := &recordingSink{written: map[string]time.Duration{}, began: time.Now()}
	s := newPatientSink(to, clock.RealClock{})
	go s.run(t.Context())
	return s, to
}

func (s *patientSink) create(t *testing.T, reason string, i int) {
	event := &eventsv1.Event{Reason: reason}
	event.Name = fmt.Sprint(reason, i)
	go func() {
		if _, err := s.Create(t.Context(), event); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	synctest.Wait()
}

// TestEventsOfFewPodsAreWrittenAtOnce: also those of pods that are scheduled one after the other.
func TestEventsOfFewPodsAreWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, to := sinks(t)
		for i := range 100 {
			at := time.Since(to.began)
			s.create(t, reasonScheduled, i)
			if got, ok := to.written[fmt.Sprint(reasonScheduled, i)]; !ok || got != at {
				t.Fatalf("event %d is written after %s, %t; want %s", i, got, ok, at)
			}
			time.Sleep(burstWindow / 8)
		}
	})
}

// TestEventsWaitForABurst: the events of a burst are written after it, in the order of their arrival; other events do not wait.
func TestEventsWaitForABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, to := sinks(t)
		const pods = 2000
		for i := range pods {
			s.create(t, reasonScheduled, i)
			time.Sleep(time.Millisecond)
		}
		s.create(t, "FailedScheduling", 0)
		if n := len(to.written); n != burstSize {
			t.Errorf("%d events are written in the burst; want the first %d, and the other one", n, burstSize-1)
		}
		end := time.Since(to.began)
		time.Sleep(burstWindow + pods/turnsInPeriod*turnPeriod + turnPeriod)
		synctest.Wait()
		for i := burstSize; i < pods; i++ {
			this, last := to.written[fmt.Sprint(reasonScheduled, i)], to.written[fmt.Sprint(reasonScheduled, i-1)]
			if this < last || this < end {
				t.Fatalf("event %d is written after %s, the one before after %s, and the burst ended after %s", i, this, last, end)
			}
		}
		if s.waiting != nil {
			t.Errorf("%d events still wait", len(s.waiting))
		}
	})
}

// TestEventsWaitForALimitedTime: in a burst without an end, events are late and not lost, and not too many wait.
func TestEventsWaitForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, to := sinks(t)
		const pods = 15000
		for i := range pods {
			s.create(t, reasonScheduled, i)
			time.Sleep(time.Millisecond)
		}
		if n := to.written[fmt.Sprint(reasonScheduled, burstSize)]; n < longestWait || n > longestWait+2*turnPeriod {
			t.Errorf("the first event that waited is written after %s", n)
		}
		if len(s.waiting) > mostWaiting {
			t.Errorf("%d events wait", len(s.waiting))
		}
		time.Sleep(longestWait)
		synctest.Wait()
		if n := len(to.written); n != pods {
			t.Errorf("%d of %d events are written", n, pods)
		}
	})
}
