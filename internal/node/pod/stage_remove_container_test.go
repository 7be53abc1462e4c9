// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRemoveContainer(t *testing.T) {
	s := newStageTest(t, testPod())
	s.running()
	log := s.seen.Containers[0].LogPath
	other := log[:len(log)-len("0.log")] + "1.log" // of the next run
	for _, path := range []string{log, log + ".20260101-000000", log + ".20260102-000000.gz", other} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.cri.fail["RemoveContainer"] = errors.New("busy")
	s.failTeardown(Action{Kind: RemoveContainer, Container: "c", ID: "c-0"})
	if diff := cmp.Diff([]string{"Warning FailedKillPod error killing pod: busy"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	delete(s.cri.fail, "RemoveContainer")
	for range 2 {
		s.do(Action{Kind: RemoveContainer, Container: "c", ID: "c-0"})
	}
	if _, held := s.seen.Latest("c"); held {
		t.Error("the runtime still has the container")
	}
	left, err := os.ReadDir(log[:len(log)-len("/0.log")])
	if err != nil || len(left) != 1 || left[0].Name() != "1.log" {
		t.Errorf("logs %v, %v", left, err)
	}
}
