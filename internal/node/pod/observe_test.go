// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestTerminations: a container counts once for each time that it ends.
func TestTerminations(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
	}
	status := func(init, main v1.ContainerState) *v1.PodStatus {
		return &v1.PodStatus{
			InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: init}},
			ContainerStatuses:     []v1.ContainerStatus{{Name: "c", State: main}},
		}
	}
	for _, tc := range []struct {
		before, after *v1.PodStatus
		want          string
	}{
		{&v1.PodStatus{}, status(running, running), "[]"},
		{status(running, running), status(ended(0), running), "[init_container 0]"},
		{status(ended(0), running), status(ended(0), ended(3)), "[container 3]"},
		{status(ended(0), ended(3)), status(ended(0), ended(3)), "[]"},
		{status(ended(0), ended(3)), status(ended(0), running), "[]"},
		{&v1.PodStatus{}, status(ended(1), ended(2)), "[init_container 1 container 2]"},
		{&v1.PodStatus{}, &v1.PodStatus{EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "e", State: ended(4)}}}, "[ephemeral_container 4]"},
	} {
		var got []any
		for _, end := range terminations(tc.before, tc.after) {
			got = append(got, end.containerType, end.state.ExitCode)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("got %v, want %v", got, tc.want)
		}
	}
}

func TestStartReason(t *testing.T) {
	for want, err := range map[string]error{
		"":                           nil,
		"ErrImagePull":               &ImageError{Reason: "ErrImagePull"},
		"RunContainerError":          fmt.Errorf("start: %w", &startError{reason: "RunContainerError", err: errors.New("no")}),
		"CreateContainerConfigError": errors.New("unknown"),
	} {
		if got := startReason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
