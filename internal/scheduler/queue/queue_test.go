// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

func pod(name string, priority int32, gates ...string) *model.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Priority: &priority},
	}
	for _, gate := range gates {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, v1.PodSchedulingGate{Name: gate})
	}
	return model.NewPod(p)
}

func newQueue() (*Queue, *testingclock.FakeClock) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	return New(clock, func(*model.Pod) bool { return false }), clock
}

func always(*Item) bool { return true }

func popAll(q *Queue) []string {
	var names []string
	for item := q.Pop(); item != nil; item = q.Pop() {
		names = append(names, item.Pod.Name)
	}
	return names
}

func wantOrder(t *testing.T, q *Queue, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, popAll(q)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPriorityThenArrival(t *testing.T) {
	q, _ := newQueue()
	q.Add(pod("a", 0))
	q.Add(pod("b", 5))
	q.Add(pod("c", 0))
	q.Add(pod("d", 5))
	q.Add(pod("e", -1))
	wantOrder(t, q, "b", "d", "a", "c", "e")
}

func TestRemoveAndUpdate(t *testing.T) {
	q, _ := newQueue()
	q.Add(pod("a", 0))
	q.Add(pod("b", 0))
	q.Add(pod("c", 0))
	q.Remove("b")
	q.Remove("missing")
	changed := pod("a", 0)
	changed.Labels = map[string]string{"x": "y"}
	q.Update(changed)
	item := q.Pop()
	if item.Pod != changed {
		t.Errorf("popped %v, want the changed pod in its old position", item.Pod.Name)
	}
	wantOrder(t, q, "c")
	if q.Len() != 0 {
		t.Errorf("Len() = %d at the end", q.Len())
	}
}

func TestGates(t *testing.T) {
	q, _ := newQueue()
	q.Add(pod("a", 0, "one", "two"))
	wantOrder(t, q)
	q.Update(pod("a", 0, "two"))
	q.Wake(always)
	wantOrder(t, q)
	q.Update(pod("a", 0))
	wantOrder(t, q, "a")
}

func TestParkedUntilWoken(t *testing.T) {
	q, clock := newQueue()
	q.Add(pod("a", 0))
	q.Add(pod("b", 0))
	q.Park(q.Pop(), []string{"X"})
	q.Park(q.Pop(), []string{"Y"})
	clock.Step(time.Minute)
	wantOrder(t, q)

	q.Wake(func(item *Item) bool { return item.RejectedBy[0] == "Y" })
	wantOrder(t, q, "b")
	q.WakeOne("missing")
	q.WakeOne("a")
	wantOrder(t, q, "a")
}

func TestParkedTooLong(t *testing.T) {
	q, clock := newQueue()
	q.Add(pod("a", 0))
	q.Park(q.Pop(), []string{"X"})
	if next, found := q.Next(); !found || next.Sub(clock.Now()) != maxParked {
		t.Errorf("Next() = %v, %v", next, found)
	}
	clock.Step(maxParked - 1)
	wantOrder(t, q)
	clock.Step(1)
	wantOrder(t, q, "a")
}

func TestBackoffLetsOthersFirst(t *testing.T) {
	q, clock := newQueue()
	q.Add(pod("failed", 9))
	q.Park(q.Pop(), []string{"X"})
	q.Wake(always)
	q.Add(pod("new", 0))
	item := q.Pop()
	if item.Pod.Name != "new" {
		t.Fatalf("popped %s, want the pod that is not backing off", item.Pod.Name)
	}
	// Without another pod, backoff is skipped.
	wantOrder(t, q, "failed")

	q.Park(item, []string{"X"})
	q.Add(pod("other", 0))
	clock.Step(firstBackoff)
	q.Wake(always)
	// After the backoff, the pod is queued like a new one.
	wantOrder(t, q, "other", "new")
}

func TestErrorsAlwaysBackOff(t *testing.T) {
	q, clock := newQueue()
	q.Add(pod("a", 0))
	for attempt, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		item := q.Pop()
		if item == nil {
			t.Fatalf("attempt %d: nothing to pop", attempt)
		}
		q.Retry(item)
		q.Wake(always)
		q.WakeOne("a")
		wantOrder(t, q)
		if next, found := q.Next(); !found || next.Sub(clock.Now()) != want {
			t.Errorf("attempt %d: requeued after %v, want %v", attempt, next.Sub(clock.Now()), want)
		}
		clock.Step(want - 1)
		wantOrder(t, q)
		clock.Step(1)
	}
	wantOrder(t, q, "a")
	if _, found := q.Next(); found {
		t.Error("an empty queue has a next time")
	}
}
