// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/metrics"
	"github.com/kindred-project/kindred/internal/node/workers"
)

func TestWorkingPods(t *testing.T) {
	got := workingPods(map[workers.Working]int{
		{Lifecycle: "sync"}: 3, {Lifecycle: "terminating", Deleted: true, Static: true}: 2, {Lifecycle: "terminated", Deleted: true, RuntimeOnly: true}: 1,
	})
	if len(got) != 15 {
		t.Errorf("%d classes, want all 15 that upstream shows", len(got))
	}
	for class, n := range got {
		if n == 0 {
			delete(got, class)
		}
	}
	want := map[metrics.WorkingPod]int{
		{Lifecycle: "sync", Config: "desired"}:                               3,
		{Lifecycle: "terminating", Config: "orphan", Static: "true"}:         2,
		{Lifecycle: "terminated", Config: "runtime_only", Static: "unknown"}: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCountResizes(t *testing.T) {
	s := metrics.State{PendingResizes: map[metrics.PendingResize]int{}}
	for _, p := range []struct {
		condition v1.PodCondition
		priority  *int32
	}{
		{v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}, nil},
		{v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible}, new(int32(100_000))},
		{v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionFalse, Reason: v1.PodReasonDeferred}, nil},
		{v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}, nil},
	} {
		countResizes(&s, &v1.Pod{Spec: v1.PodSpec{Priority: p.priority}, Status: v1.PodStatus{Conditions: []v1.PodCondition{p.condition}}})
	}
	want := map[metrics.PendingResize]int{
		{Reason: "deferred", Priority: "normal"}: 1, {Reason: "infeasible", Priority: "high"}: 1,
	}
	if diff := cmp.Diff(want, s.PendingResizes); diff != "" || s.ResizingPods != 1 {
		t.Errorf("%d in progress, %s", s.ResizingPods, diff)
	}
}
