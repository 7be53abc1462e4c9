// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue keeps the pods that wait for a node.
//
// A waiting pod is in one of five places:
//
//	gated     it has scheduling gates, and is not looked at until they are gone;
//	active    to be tried, by priority, then by arrival;
//	parked    tried in vain; only a change which could help it brings it back;
//	backing   woken, but tried so recently that others go first: 1 s after the first
//	          failure, doubling up to 10 s;
//	retrying  not placed because of an error and not of the cluster's state, which no
//	          change will announce: back when its back-off is over.
//
// When nothing is active, those that are backing off are tried early: back-off is
// there to let others through, not to keep the scheduler idle. A pod that errors
// always waits. Should a change have been overlooked, a parked pod is tried again
// after five minutes.
//
// A queue belongs to one goroutine, as the rest of the scheduler's state does, so a
// change cannot slip between the decision about a pod and its parking.
package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

const (
	firstBackoff = 1 * time.Second
	maxBackoff   = 10 * time.Second
	// patience is how long a parked pod waits for a change at most.
	patience = 5 * time.Minute
)

// Item is a waiting pod and what has become of it so far.
type Item struct {
	Pod *model.Pod
	// RejectedBy names the filters that rejected it when it was last tried; none if
	// something else stood in the way.
	RejectedBy []string

	attempts int
	arrival  uint64
	// ready is when its back-off ends, overdue when it has been parked too long.
	ready, overdue time.Time
	in             *items
	index          int
}

// Queue is the waiting pods.
type Queue struct {
	clock    clock.PassiveClock
	arrivals uint64
	waiting  map[types.UID]*Item

	active, backing, retrying, parked *items
}

// New is an empty queue.
func New(clock clock.PassiveClock) *Queue {
	return &Queue{
		clock:    clock,
		waiting:  map[types.UID]*Item{},
		active:   &items{less: moreUrgent},
		backing:  &items{less: readyFirst},
		retrying: &items{less: readyFirst},
		parked:   &items{less: func(a, b *Item) bool { return a.overdue.Before(b.overdue) }},
	}
}

func moreUrgent(a, b *Item) bool {
	if a.Pod.Priority != b.Pod.Priority {
		return a.Pod.Priority > b.Pod.Priority
	}
	return a.arrival < b.arrival
}

func readyFirst(a, b *Item) bool {
	if !a.ready.Equal(b.ready) {
		return a.ready.Before(b.ready)
	}
	return moreUrgent(a, b)
}

// Len is how many pods wait.
func (q *Queue) Len() int { return len(q.waiting) }

// Get is the item of a waiting pod, or nil.
func (q *Queue) Get(uid types.UID) *Item { return q.waiting[uid] }

// Add takes in a new pod.
func (q *Queue) Add(pod *model.Pod) {
	q.Remove(pod.UID)
	item := &Item{Pod: pod}
	q.waiting[pod.UID] = item
	if !gated(pod) {
		q.activate(item)
	}
}

// Update takes in a change of a waiting pod; when its last gate goes, it is active.
func (q *Queue) Update(pod *model.Pod) {
	item := q.waiting[pod.UID]
	if item == nil {
		q.Add(pod)
		return
	}
	wasGated := gated(item.Pod)
	item.Pod = pod
	switch {
	case gated(pod):
		item.leave()
	case wasGated:
		q.activate(item)
	}
}

// Remove drops a pod.
func (q *Queue) Remove(uid types.UID) {
	item := q.waiting[uid]
	if item == nil {
		return
	}
	item.leave()
	delete(q.waiting, uid)
}

// Pop takes out the pod to be tried next, nil if there is none. The caller places
// it, or gives it back with Park or Retry.
func (q *Queue) Pop() *Item {
	q.promote()
	item := q.active.first()
	if item == nil {
		item = q.backing.first()
	}
	if item == nil {
		return nil
	}
	item.leave()
	delete(q.waiting, item.Pod.UID)
	item.attempts++
	return item
}

// promote moves everything whose time has come.
func (q *Queue) promote() {
	now := q.clock.Now()
	for _, heap := range []*items{q.backing, q.retrying} {
		for item := heap.first(); item != nil && !now.Before(item.ready); item = heap.first() {
			q.activate(item)
		}
	}
	for item := q.parked.first(); item != nil && !now.Before(item.overdue); item = q.parked.first() {
		q.wake(item)
	}
}

// Park takes back a pod that fits nowhere, until a change might help it.
func (q *Queue) Park(item *Item, rejectedBy []string) {
	item.RejectedBy = rejectedBy
	q.takeBack(item)
	item.overdue = q.clock.Now().Add(patience)
	q.parked.add(item)
}

// Retry takes back a pod which an error kept from being placed.
func (q *Queue) Retry(item *Item) {
	item.RejectedBy = nil
	q.takeBack(item)
	q.retrying.add(item)
}

func (q *Queue) takeBack(item *Item) {
	q.waiting[item.Pod.UID] = item
	item.ready = q.clock.Now().Add(backoff(item.attempts))
}

// backoff is how long a pod steps back after so many attempts.
func backoff(attempts int) time.Duration {
	d := firstBackoff
	for range attempts - 1 {
		if d *= 2; d >= maxBackoff {
			return maxBackoff
		}
	}
	return d
}

// Wake brings back the parked pods which a change might help.
func (q *Queue) Wake(helps func(*Item) bool) {
	var woken []*Item
	for _, item := range q.parked.list {
		if helps(item) {
			woken = append(woken, item)
		}
	}
	for _, item := range woken {
		q.wake(item)
	}
}

// WakeOne brings back one pod if it is parked.
func (q *Queue) WakeOne(uid types.UID) {
	if item := q.waiting[uid]; item != nil && item.in == q.parked {
		q.wake(item)
	}
}

func (q *Queue) wake(item *Item) {
	if !q.clock.Now().Before(item.ready) {
		q.activate(item)
		return
	}
	item.leave()
	q.arrive(item)
	q.backing.add(item)
}

func (q *Queue) activate(item *Item) {
	item.leave()
	q.arrive(item)
	q.active.add(item)
}

// arrive puts an item behind those of its priority that are there already.
func (q *Queue) arrive(item *Item) {
	q.arrivals++
	item.arrival = q.arrivals
}

// Next is when something will have to be done even if nothing changes; false if
// never.
func (q *Queue) Next() (time.Time, bool) {
	var next time.Time
	if item := q.retrying.first(); item != nil {
		next = item.ready
	}
	if item := q.parked.first(); item != nil && (next.IsZero() || item.overdue.Before(next)) {
		next = item.overdue
	}
	return next, !next.IsZero()
}

func gated(pod *model.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }
