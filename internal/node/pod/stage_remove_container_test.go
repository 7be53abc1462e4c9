// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	s.cri.fail["RemoveContainer"] = status.Error(codes.FailedPrecondition, "cannot delete running task")
	s.failTeardown(Action{Kind: RemoveContainer, Container: "c", ID: "c-0"})
	if calls := s.cri.took(); !slices.Contains(calls, "Kill c-0") {
		t.Errorf("calls %v, want one that kills the processes", calls)
	}
	s.takeEvents()
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
