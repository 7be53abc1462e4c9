// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func hookedPod() *v1.Pod {
	pod := testPod()
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}, PreStop: &v1.LifecycleHandler{}}
	return pod
}

func TestPostStart(t *testing.T) {
	s := newStageTest(t, hookedPod())
	s.running()
	s.node.hook = func(context.Context) (string, error) { return "secret", errors.New("exit code 1") }
	s.do(Action{Kind: PostStart, Container: "c", ID: "c-0"})
	if run := s.memory.Runs["c-0"]; run.Hooked || !run.HookFailed {
		t.Errorf("after a failure: %+v", run)
	}
	if got := s.memory.Failures[OfContainer("c")]; got.Reason != "PostStartHookError" || got.Message != "secret" {
		t.Errorf("failure %+v", got)
	}
	if diff := cmp.Diff([]string{"Warning FailedPostStartHook PostStartHook failed"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	s.node.hook = func(context.Context) (string, error) { return "", nil }
	s.do(Action{Kind: PostStart, Container: "c", ID: "c-0"})
	if run := s.memory.Runs["c-0"]; !run.Hooked || run.HookFailed {
		t.Errorf("after a success: %+v", run)
	}
}

// TestPostStartOfPodThatStops: a cancelled hook did not fail, so nothing is recorded.
func TestPostStartOfPodThatStops(t *testing.T) {
	s := newStageTest(t, hookedPod())
	s.running()
	ctx, cancel := context.WithCancel(t.Context())
	s.node.hook = func(context.Context) (string, error) {
		cancel()
		return "cancelled", context.Canceled
	}
	s.doIn(ctx, Action{Kind: PostStart, Container: "c", ID: "c-0"})
	if run, known := s.memory.Runs["c-0"]; known || len(s.memory.Failures) > 0 || len(s.takeEvents()) > 0 {
		t.Errorf("run %+v, failures %v", run, s.memory.Failures)
	}
}
