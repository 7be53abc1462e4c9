// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelease(t *testing.T) {
	for _, call := range []string{"Unprepare", "Release", "Teardown", "Remove"} {
		s := newStageTest(t, testPod())
		s.cri.fail[call] = errors.New("busy")
		s.do(Action{Kind: Release})
		// A failure of one does not keep the others from being released.
		if diff := cmp.Diff([]string{"Unprepare", "Release", "Teardown", "Remove"}, s.cri.took()); diff != "" {
			t.Errorf("%s fails: calls (-want +got):\n%s", call, diff)
		}
		if want := call != "Unprepare"; s.memory.ClaimsReleased != want {
			t.Errorf("%s fails: claims released %t", call, s.memory.ClaimsReleased)
		}
		if failure := s.memory.Failures[OfVolumes]; s.memory.Released || failure.Reason != "FailedKillPod" || failure.Count != 1 {
			t.Errorf("%s fails: released %t, failure %+v", call, s.memory.Released, failure)
		}
		if diff := cmp.Diff([]string{"Warning FailedKillPod error killing pod: busy"}, s.takeEvents()); diff != "" {
			t.Errorf("%s fails: events (-want +got):\n%s", call, diff)
		}
		delete(s.cri.fail, call)
		s.do(Action{Kind: Release})
		// The IDs of the pod are free once nothing has them any more.
		if diff := cmp.Diff([]string{"Unprepare", "Release", "Teardown", "Remove", "ReleaseUsers"}, s.cri.took()); diff != "" {
			t.Errorf("%s succeeds: calls (-want +got):\n%s", call, diff)
		}
		if !s.memory.Released || !s.memory.ClaimsReleased {
			t.Errorf("%s succeeds: not released", call)
		}
	}
}
