// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue has the pending pods.
//
// A pending pod is in one of five states:
//
//	gated     it has scheduling gates, or needs objects or other pods that do not exist, and is not
//	          tried until that has changed;
//	active    to be tried, ordered by priority, then by arrival;
//	parked    no node fits; requeued by a change that may help (upstream: unschedulable);
//	backoff   requeued, but tried recently, so other pods go first: 1 s after the first failure,
//	          doubling up to 10 s;
//	retrying  not placed because of an error, which no change will fix: requeued after its backoff.
//
// If no pod is active, pods in backoff are tried early: backoff exists to let other pods go first,
// not to keep the scheduler idle. A pod that failed with an error always waits. In case a change
// was missed, a parked pod is tried again after five minutes.
//
// A queue belongs to one goroutine, like the rest of the scheduler's state, so no change can be
// missed between the decision about a pod and its parking.
package queue

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

const (
	firstBackoff = 1 * time.Second
	maxBackoff   = 10 * time.Second
	// maxParked is the longest time that a pod stays parked (upstream:
	// podMaxInUnschedulablePodsDuration).
	maxParked = 5 * time.Minute
)

// Item is a pending pod with its scheduling attempts.
type Item struct {
	Pod *model.Pod
	// RejectedBy names the filters that rejected the pod in the last attempt; none if it failed for
	// another reason.
	RejectedBy []string

	attempts int
	arrival  uint64 // orders items of the same priority
	// ready is when its backoff ends, overdue when it has been parked for too long.
	ready, overdue time.Time
	// in is the heap with the item, or nil, and index the item's position there.
	in    *items
	index int
}

// Queue has the pending pods.
type Queue struct {
	clock    clock.PassiveClock
	isGated  func(*model.Pod) bool
	arrivals uint64
	// pending has all items. Those that are gated are in gated, and in no heap.
	pending map[types.UID]*Item
	gated   map[types.UID]*Item

	active, backoff, retrying, parked *items
}

// New returns an empty queue. isGated reports whether a pod must not be tried, scheduling gates
// aside.
func New(clock clock.PassiveClock, isGated func(*model.Pod) bool) *Queue {
	return &Queue{
		clock:    clock,
		isGated:  isGated,
		pending:  map[types.UID]*Item{},
		gated:    map[types.UID]*Item{},
		active:   &items{less: moreUrgent},
		backoff:  &items{less: readyFirst},
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

// Now returns the time on the queue's clock.
func (q *Queue) Now() time.Time { return q.clock.Now() }

// Len returns the number of pending pods.
func (q *Queue) Len() int { return len(q.pending) }

// Get returns the item of a pending pod, or nil.
func (q *Queue) Get(uid types.UID) *Item { return q.pending[uid] }

// Add adds a new pod.
func (q *Queue) Add(pod *model.Pod) {
	q.Remove(pod.UID)
	item := &Item{Pod: pod}
	q.pending[pod.UID] = item
	q.activate(item)
}

// Update applies a change of a pending pod. When it is no longer gated, it becomes active.
func (q *Queue) Update(pod *model.Pod) {
	item := q.pending[pod.UID]
	if item == nil {
		q.Add(pod)
		return
	}
	item.Pod = pod
	if len(pod.Spec.SchedulingGates) > 0 || q.gated[pod.UID] != nil {
		q.activate(item)
	}
}

// Ungate makes the pods active that are no longer gated.
func (q *Queue) Ungate() {
	var free []*Item
	for _, item := range q.gated {
		if !q.mustWait(item.Pod) {
			free = append(free, item)
		}
	}
	slices.SortFunc(free, func(a, b *Item) int { return cmp.Compare(a.arrival, b.arrival) })
	for _, item := range free {
		q.activate(item)
	}
}

// Remove removes a pod.
func (q *Queue) Remove(uid types.UID) {
	item := q.pending[uid]
	if item == nil {
		return
	}
	item.leave()
	delete(q.pending, uid)
	delete(q.gated, uid)
}

// Pop removes and returns the next pod to try; nil if there is none. The caller places it, or
// returns it with Park or Retry.
func (q *Queue) Pop() *Item {
	item := q.First()
	if item == nil {
		return nil
	}
	return q.Take(item.Pod.UID)
}

// Take removes and returns a pod that may be tried, even before its backoff is over; nil if it is
// gated or not pending. The caller handles it as one from Pop.
func (q *Queue) Take(uid types.UID) *Item {
	item := q.pending[uid]
	if item == nil || item.in == nil {
		return nil
	}
	item.leave()
	delete(q.pending, uid)
	item.attempts++
	return item
}

// First returns what Pop would return, and leaves it in the queue.
func (q *Queue) First() *Item {
	q.promote()
	if item := q.active.first(); item != nil {
		return item
	}
	return q.backoff.first()
}

// IsActive reports whether a pod is active.
func (q *Queue) IsActive(uid types.UID) bool {
	item := q.pending[uid]
	return item != nil && item.in == q.active
}

// CompareMembers orders pods that are tried together: by more attempts, then by creation.
func CompareMembers(a, b *Item) int {
	return cmp.Or(
		cmp.Compare(b.attempts, a.attempts),
		a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
	)
}

// promote requeues the pods whose backoff is over, or that were parked for too long.
func (q *Queue) promote() {
	now := q.clock.Now()
	for _, heap := range []*items{q.backoff, q.retrying} {
		for item := heap.first(); item != nil && !now.Before(item.ready); item = heap.first() {
			q.activate(item)
		}
	}
	for item := q.parked.first(); item != nil && !now.Before(item.overdue); item = q.parked.first() {
		q.wake(item)
	}
}

// Park returns a pod that fits on no node. It waits for a change that may help.
func (q *Queue) Park(item *Item, rejectedBy []string) {
	item.RejectedBy = rejectedBy
	q.takeBack(item)
	item.overdue = q.clock.Now().Add(maxParked)
	q.parked.add(item)
}

// Return returns a pod that may be tried again at once. It becomes active, unless it is gated now.
func (q *Queue) Return(item *Item) {
	item.RejectedBy = nil
	q.takeBack(item)
	q.activate(item)
}

// Recheck makes a pod active if it is no longer gated.
func (q *Queue) Recheck(uid types.UID) {
	if item := q.gated[uid]; item != nil && !q.mustWait(item.Pod) {
		q.activate(item)
	}
}

// Retry returns a pod that was not placed because of an error.
func (q *Queue) Retry(item *Item) {
	item.RejectedBy = nil
	q.takeBack(item)
	q.retrying.add(item)
}

func (q *Queue) takeBack(item *Item) {
	q.pending[item.Pod.UID] = item
	item.ready = q.clock.Now().Add(backoffAfter(item.attempts))
}

// backoffAfter returns the backoff after a number of attempts.
func backoffAfter(attempts int) time.Duration {
	d := firstBackoff
	for range attempts - 1 {
		if d *= 2; d >= maxBackoff {
			return maxBackoff
		}
	}
	return d
}

// Wake requeues the parked pods that a change may help.
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

// WakeOne requeues one pod if it is parked.
func (q *Queue) WakeOne(uid types.UID) {
	if item := q.pending[uid]; item != nil && item.in == q.parked {
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
	q.backoff.add(item)
}

// activate requeues an item, unless it is gated.
func (q *Queue) activate(item *Item) {
	item.leave()
	q.arrive(item)
	if q.mustWait(item.Pod) {
		q.gated[item.Pod.UID] = item
		return
	}
	delete(q.gated, item.Pod.UID)
	q.active.add(item)
}

// arrive numbers an item, so that it is ordered behind all others of the same priority.
func (q *Queue) arrive(item *Item) {
	q.arrivals++
	item.arrival = q.arrivals
}

// Next returns when the queue needs attention next without any change; false if never.
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

// mustWait reports whether a pod is gated.
func (q *Queue) mustWait(pod *model.Pod) bool {
	return len(pod.Spec.SchedulingGates) > 0 || q.isGated(pod)
}
