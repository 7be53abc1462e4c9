// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStopSandbox(t *testing.T) {
	s := newStageTest(t, testPod())
	s.do(Action{Kind: CreateSandbox})
	s.cri.fail["StopPodSandbox"] = errors.New("busy")
	s.failTeardown(Action{Kind: StopSandbox, ID: "sandbox-0"})
	if diff := cmp.Diff([]string{"Warning FailedKillPod error killing pod: busy"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	delete(s.cri.fail, "StopPodSandbox")
	for range 2 {
		s.do(Action{Kind: StopSandbox, ID: "sandbox-0"})
		if _, ready := s.seen.ReadySandbox(); ready || !s.memory.Stopped["sandbox-0"] {
			t.Errorf("ready %t, stopped %v", ready, s.memory.Stopped)
		}
	}
}

// TestStopMissingSandbox: a sandbox that the runtime no longer has counts as stopped.
func TestStopMissingSandbox(t *testing.T) {
	s := newStageTest(t, testPod())
	s.do(Action{Kind: StopSandbox, ID: "missing"})
	if events := s.takeEvents(); !s.memory.Stopped["missing"] || len(events) > 0 {
		t.Errorf("stopped %v, events %v", s.memory.Stopped, events)
	}
}
