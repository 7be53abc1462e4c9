// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// seatsPerProcessor is the number of concurrent writes for each processor. While some wait for the store, the others keep the
	// processor busy.
	seatsPerProcessor = 16
	// seatTime is the maximum time that a write keeps its seat. A longer write probably waits for an admission webhook and needs no
	// processor.
	seatTime = 100 * time.Millisecond
)

// seats limit how many writes of the cluster's parts are in progress at a time. A hundred ReplicaSets that create their pods
// can use all processors. Without a limit, hundreds of goroutines are ready to run, and an informer waits for all of them
// between two events: ever more pods are created, but their nodes hear of them minutes later.
type seats struct {
	clock clock.WithDelayedExecution

	mu   sync.Mutex
	free int
	// waiting has the writes that wait, by urgency, the first one first.
	waiting [2][]chan struct{}
}

// urgency is the order of writes that wait.
type urgency int

const (
	// placed is for writes about pods that exist: they end what others began.
	placed urgency = iota
	// started is for writes that begin something.
	started
)

func newSeats(c clock.WithDelayedExecution) *seats {
	return &seats{clock: c, free: seatsPerProcessor * runtime.GOMAXPROCS(0)}
}

// take waits for a seat. Unless there is an error, leave must be called after the write.
func (s *seats) take(ctx context.Context, u urgency) (leave func(), err error) {
	if turn := s.enqueue(u); turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
			s.withdraw(turn, u)
			return nil, ctx.Err()
		}
	}
	once := sync.OnceFunc(s.leave)
	timer := s.clock.AfterFunc(seatTime, once)
	return func() { timer.Stop(); once() }, nil
}

// enqueue takes a free seat and returns nil, or returns a channel that is closed when a seat is taken.
func (s *seats) enqueue(u urgency) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free > 0 {
		s.free--
		return nil
	}
	turn := make(chan struct{})
	s.waiting[u] = append(s.waiting[u], turn)
	return turn
}

// withdraw stops waiting. A seat that was given in the meantime is left.
func (s *seats) withdraw(turn chan struct{}, u urgency) {
	s.mu.Lock()
	i := slices.Index(s.waiting[u], turn)
	if i >= 0 {
		s.waiting[u] = slices.Delete(s.waiting[u], i, i+1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.leave()
	}
}

// leave gives the seat to the next write.
func (s *seats) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for u := range s.waiting {
		if len(s.waiting[u]) == 0 {
			continue
		}
		close(s.waiting[u][0])
		s.waiting[u] = slices.Delete(s.waiting[u], 0, 1)
		return
	}
	s.free++
}
