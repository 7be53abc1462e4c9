// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// TestTake: a pod can be taken wherever it is queued, but not while it is gated.
func TestTake(t *testing.T) {
	q, _ := newQueue()
	for _, name := range []string{"parked", "retrying", "active"} {
		q.Add(pod(name, 0))
	}
	q.Park(q.Take("parked"), nil)
	q.Retry(q.Take("retrying"))
	q.Add(pod("gated", 0, "g"))
	for name, want := range map[string]bool{"parked": true, "retrying": true, "active": true, "gated": false, "unknown": false} {
		if item := q.Take(pod(name, 0).UID); (item != nil) != want {
			t.Errorf("%s: %v", name, item)
		}
	}
	if q.Len() != 1 {
		t.Errorf("%d pods are left", q.Len())
	}
}

// TestReturnAndRecheck: a returned pod is active at once, unless it is gated now.
func TestReturnAndRecheck(t *testing.T) {
	gated := false
	q := New(testingclock.NewFakeClock(time.Unix(1000, 0)), func(*model.Pod) bool { return gated })
	q.Add(pod("a", 0))
	q.Return(q.Pop())
	if first := q.First(); first == nil || !q.IsActive("a") {
		t.Fatalf("%v", first)
	}
	gated = true
	q.Return(q.Pop())
	if q.IsActive("a") || q.First() != nil {
		t.Error("the pod is active although it is gated")
	}
	q.Recheck("a")
	if q.IsActive("a") {
		t.Error("the pod is still gated")
	}
	gated = false
	q.Recheck("a")
	wantOrder(t, q, "a")
}

func TestCompareMembers(t *testing.T) {
	item := func(name string, attempts int, created int64) *Item {
		p := pod(name, 0)
		p.CreationTimestamp = metav1.NewTime(time.Unix(created, 0))
		return &Item{Pod: p, attempts: attempts}
	}
	want := []*Item{item("d", 3, 9), item("c", 1, 1), item("a", 1, 2), item("b", 1, 2)}
	got := []*Item{want[3], want[1], want[0], want[2]}
	if slices.SortFunc(got, CompareMembers); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
