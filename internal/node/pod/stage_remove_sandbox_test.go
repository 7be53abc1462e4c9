// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRemoveSandbox(t *testing.T) {
	s := newStageTest(t, testPod())
	s.running()
	s.do(Action{Kind: StopSandbox, ID: "sandbox-0"})
	s.cri.fail["RemovePodSandbox"] = errors.New("busy")
	s.failTeardown(Action{Kind: RemoveSandbox, ID: "sandbox-0"})
	if diff := cmp.Diff([]string{"Warning FailedKillPod error killing pod: busy"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	delete(s.cri.fail, "RemovePodSandbox")
	for range 2 {
		s.do(Action{Kind: RemoveSandbox, ID: "sandbox-0"})
		if len(s.seen.Sandboxes)+len(s.seen.Containers) > 0 {
			t.Errorf("the runtime still has %+v", s.seen)
		}
	}
}
