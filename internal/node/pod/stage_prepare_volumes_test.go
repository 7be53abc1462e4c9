// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrepareVolumes(t *testing.T) {
	s := newStageTest(t, testPod())
	s.cri.fail["Prepare"] = errors.New(`MountVolume.SetUp failed for volume "v" : configmap "c" not found`)
	s.do(Action{Kind: PrepareVolumes})
	failure := s.memory.Failures[OfVolumes]
	if s.memory.VolumesReady || failure.Count != 1 || !failure.RetryAt.Equal(caseTime.Add(retryFirst)) {
		t.Errorf("after a failure: ready %t, failure %+v", s.memory.VolumesReady, failure)
	}
	want := []string{`Warning FailedMount MountVolume.SetUp failed for volume "v" : configmap "c" not found`}
	if diff := cmp.Diff(want, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	delete(s.cri.fail, "Prepare")
	s.do(Action{Kind: PrepareVolumes})
	if _, failed := s.memory.Failures[OfVolumes]; !s.memory.VolumesReady || failed {
		t.Errorf("after a success: ready %t, failures %v", s.memory.VolumesReady, s.memory.Failures)
	}
}

// TestPrepareVolumesOfPodThatStops: a cancelled attempt records no event.
func TestPrepareVolumesOfPodThatStops(t *testing.T) {
	s := newStageTest(t, testPod())
	s.cri.fail["Prepare"] = context.Canceled
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.doIn(ctx, Action{Kind: PrepareVolumes})
	if events := s.takeEvents(); len(events) > 0 || s.memory.VolumesReady {
		t.Errorf("events %v, ready %t", events, s.memory.VolumesReady)
	}
}

// TestEventsOfVolumes: each failure is an event with its own reason, except where the volume only waits.
func TestEventsOfVolumes(t *testing.T) {
	s := newStageTest(t, testPod())
	s.cri.fail["Prepare"] = errors.Join(
		&VolumeError{Reason: "FailedMapVolume", Message: "one"}, &VolumeError{Message: "waits"},
		errors.Join(&VolumeError{Reason: "FailedMount", Message: "two"}))
	s.do(Action{Kind: PrepareVolumes})
	if diff := cmp.Diff([]string{"Warning FailedMapVolume one", "Warning FailedMount two"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s.memory.Failures[OfVolumes].Count != 1 {
		t.Errorf("failures %+v", s.memory.Failures)
	}
}

// TestTooManyVolumes: a pod whose volumes the node cannot have fails, and is not retried.
func TestTooManyVolumes(t *testing.T) {
	s := newStageTest(t, testPod())
	s.cri.fail["Prepare"] = &TooManyVolumes{Message: "Node has reached its volume attachment limit, rejecting pod."}
	s.do(Action{Kind: PrepareVolumes})
	want := []string{"Warning VolumeAttachmentLimitExceeded Node has reached its volume attachment limit, rejecting pod."}
	if diff := cmp.Diff(want, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	refusal := &Refusal{Reason: "VolumeAttachmentLimitExceeded", Message: "Node has reached its volume attachment limit, rejecting pod."}
	if diff := cmp.Diff(refusal, s.memory.Rejected); diff != "" || len(s.memory.Failures) > 0 {
		t.Errorf("failures %v, rejected (-want +got):\n%s", s.memory.Failures, diff)
	}
}
