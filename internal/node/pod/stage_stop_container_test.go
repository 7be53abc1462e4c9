// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
