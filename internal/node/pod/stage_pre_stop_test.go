// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPreStop(t *testing.T) {
	for _, test := range []struct {
		err    error
		events []string
	}{
		{nil, nil},
		{errors.New("exit code 1"), []string{"Warning FailedPreStopHook PreStopHook failed"}},
	} {
		s := newStageTest(t, hookedPod())
		s.running()
		s.node.hook = func(context.Context) (string, error) { return "secret", test.err }
		s.do(Action{Kind: PreStop, Container: "c", ID: "c-0", Deadline: caseTime.Add(time.Second)})
		if !s.memory.Runs["c-0"].PreStopped {
			t.Errorf("hook that ends with %v: memory %+v", test.err, s.memory.Runs["c-0"])
		}
		if diff := cmp.Diff(test.events, s.takeEvents()); diff != "" {
			t.Errorf("hook that ends with %v: events (-want +got):\n%s", test.err, diff)
		}
	}
}

// TestPreStopDeadline: a hook that takes longer than the grace period is not cancelled before its container is killed.
func TestPreStopDeadline(t *testing.T) {
	s := newStageTest(t, hookedPod())
	s.running()
	cancelled, stopped := make(chan struct{}), make(chan struct{})
	s.node.hook = func(ctx context.Context) (string, error) {
		for !s.clock.HasWaiters() { // the stage waits for the deadline
			runtime.Gosched()
		}
		s.clock.Step(time.Second)
		<-stopped
		for !s.clock.HasWaiters() {
			runtime.Gosched()
		}
		s.clock.Step(minGrace - 1)
		if ctx.Err() != nil {
			t.Error("the hook was cancelled while its container could still run")
		}
		s.clock.Step(1)
		<-ctx.Done()
		close(cancelled)
		return "", ctx.Err()
	}
	s.do(Action{Kind: PreStop, Container: "c", ID: "c-0", Deadline: caseTime.Add(time.Second)})
	close(stopped)
	<-cancelled
	if events := s.takeEvents(); !s.memory.Runs["c-0"].PreStopped || len(events) > 0 {
		t.Errorf("memory %+v, events %v", s.memory.Runs["c-0"], events)
	}
}

// TestRuntimeEndsDuringPreStop: the hook does not count as over, and is repeated.
func TestRuntimeEndsDuringPreStop(t *testing.T) {
	s := newStageTest(t, hookedPod())
	s.running()
	s.node.hook = func(context.Context) (string, error) {
		return "", status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	s.do(Action{Kind: PreStop, Container: "c", ID: "c-0", Deadline: caseTime.Add(time.Second)})
	if s.memory.Runs["c-0"].PreStopped || !s.memory.Interrupted {
		t.Errorf("memory %+v", s.memory)
	}
}
