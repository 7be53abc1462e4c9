// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

func TestStopContainer(t *testing.T) {
	for _, test := range []struct {
		grace time.Duration
		want  string
	}{
		{30 * time.Second, "StopContainer c-0 in 30s"},
		{29500 * time.Millisecond, "StopContainer c-0 in 30s"}, // CRI counts whole seconds
		{0, "StopContainer c-0 in 2s"},                         // minGrace
		{-time.Minute, "StopContainer c-0 in 2s"},
	} {
		s := newStageTest(t, testPod())
		s.running()
		s.do(Action{Kind: StopContainer, Container: "c", ID: "c-0", Deadline: caseTime.Add(test.grace)})
		if diff := cmp.Diff([]string{test.want}, s.cri.took()); diff != "" {
			t.Errorf("%v: calls (-want +got):\n%s", test.grace, diff)
		}
		if run, _ := s.seen.Latest("c"); run.State != runtime.Exited {
			t.Errorf("%v: the container is %v", test.grace, run.State)
		}
	}
}

func TestStopContainerFails(t *testing.T) {
	s := newStageTest(t, testPod())
	s.running()
	s.cri.fail["StopContainer"] = errors.New("busy")
	s.failTeardown(Action{Kind: StopContainer, Container: "c", ID: "c-0", Deadline: caseTime})
	if diff := cmp.Diff([]string{"Warning FailedKillPod error killing pod: busy"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// A missing container counts as stopped.
	s.cri.fail["StopContainer"] = notFound("container")
	s.do(Action{Kind: StopContainer, Container: "c", ID: "c-0", Deadline: caseTime})
	if events := s.takeEvents(); len(events) > 0 {
		t.Errorf("events %v", events)
	}
}

// TestRuntimeEndsDuringStop: the stop of a container begins again, with its hook and the whole grace period, however long the
// runtime was away.
func TestRuntimeEndsDuringStop(t *testing.T) {
	const grace = 10 * time.Second
	s := newStageTest(t, hookedPod())
	s.running()
	s.pod.DeletionTimestamp, s.pod.DeletionGracePeriodSeconds = &metav1.Time{Time: caseTime}, new(int64(grace/time.Second))
	s.memory.StoppingSince = caseTime
	s.memory.Runs["c-0"] = RunMemory{PreStopped: true, Deadline: caseTime.Add(grace)}
	s.cri.fail["StopContainer"] = status.Error(codes.Unavailable, "error reading from server: EOF")
	interrupted := s.stopFails(Action{Kind: StopContainer, Container: "c", ID: "c-0", Deadline: caseTime.Add(grace)})
	interrupted(&s.memory)

	again := caseTime.Add(8 * time.Second)
	out := Decide(Input{Pod: s.pod, Old: s.pod.Status, Runtime: s.seen, Memory: s.memory, Now: again})
	want := []Action{{Kind: PreStop, Container: "c", ID: "c-0", Deadline: again.Add(grace)}}
	if diff := cmp.Diff(want, out.Actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	// The next decision does not begin once more.
	later := Decide(Input{Pod: s.pod, Old: out.Status, Runtime: s.seen, Memory: out.Memory, Now: again.Add(time.Second)})
	if diff := cmp.Diff(want, later.Actions); diff != "" {
		t.Errorf("next actions (-want +got):\n%s", diff)
	}
}
