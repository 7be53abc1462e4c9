// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

// at returns when an event of a scheduled pod was written.
func (s *recordingSink) at(i int) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.written[fmt.Sprint(reasonScheduled, i)]
	return at, ok
}

func (s *recordingSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.written)
}

// sinks returns a sink that runs, and what it writes to.
func sinks(t *testing.T) (*patientSink, *recordingSink) {
	to := &recordingSink{written: map[string]time.Duration{}, began: time.Now()}
	s := newPatientSink(to, clock.RealClock{})
	go s.run(t.Context())
	return s, to
}

func (s *patientSink) waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

func (s *patientSink) create(t *testing.T, reason string, i int) {
	event := &eventsv1.Event{Reason: reason}
	event.Name = fmt.Sprint(reason, i)
	go func() {
		if _, err := s.Create(t.Context(), event); err != nil {
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
			if got, ok := to.at(i); !ok || got != at {
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
		if n := to.count(); n != burstSize {
			t.Errorf("%d events are written in the burst; want the first %d, and the other one", n, burstSize-1)
		}
		end := time.Since(to.began)
		time.Sleep(burstWindow + pods/turnsInPeriod*turnPeriod + turnPeriod)
		synctest.Wait()
		for i := burstSize; i < pods; i++ {
			this, _ := to.at(i)
			last, _ := to.at(i - 1)
			if this < last || this < end {
				t.Fatalf("event %d is written after %s, the one before after %s, and the burst ended after %s", i, this, last, end)
			}
		}
		if n := s.waits(); n > 0 {
			t.Errorf("%d events still wait", n)
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
		if n, _ := to.at(burstSize); n < longestWait || n > longestWait+2*turnPeriod {
			t.Errorf("the first event that waited is written after %s", n)
		}
		if n := s.waits(); n > mostWaiting {
			t.Errorf("%d events wait", n)
		}
		time.Sleep(longestWait)
		synctest.Wait()
		if n := to.count(); n != pods {
			t.Errorf("%d of %d events are written", n, pods)
		}
	})
}

// TestEventsAtAStop: events that wait do not keep the process, and make no noise.
func TestEventsAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s, to := sinks(t)
		var failed atomic.Pointer[error]
		for range 2 * burstSize {
			go func() {
				if _, err := s.Create(ctx, &eventsv1.Event{Reason: reasonScheduled}); err != nil {
					failed.Store(&err)
				}
			}()
			synctest.Wait()
		}
		stop()
		synctest.Wait() // the test would not end while a goroutine waits
		if failed.Load() != nil || to.count() != 1 {
			t.Errorf("got %v, and %d names of events are written", failed.Load(), to.count())
		}
	})
}
