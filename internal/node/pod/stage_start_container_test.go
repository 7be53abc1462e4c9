// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

func TestStartContainer(t *testing.T) {
	pod := testPod()
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	s := newStageTest(t, pod)
	s.node.mounts = []*runtimeapi.Mount{{ContainerPath: "/data"}}
	s.do(Action{Kind: CreateSandbox})
	s.cri.took()
	s.memory.Failures[OfContainer("c")] = Failure{Reason: "ErrImagePull"}
	s.do(Action{Kind: StartContainer, Container: "c", Attempt: 1, BackOff: 20 * time.Second})

	if diff := cmp.Diff([]string{"Grow", "CreateContainer c-1 in sandbox-0", "StartContainer c-1"}, s.cri.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	run, _ := s.seen.Latest("c")
	if run.State != runtime.Running || run.Attempt != 1 || run.BackOff != 20*time.Second || run.Image != "id of i:1" {
		t.Errorf("run %+v", run)
	}
	if len(s.memory.Failures) > 0 {
		t.Errorf("failures %v", s.memory.Failures)
	}
	if diff := cmp.Diff([]string{"Normal Created Container created", "Normal Started Container started"}, s.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var mounts []string
	for _, m := range s.cri.containers["c-1"].status.Mounts {
		mounts = append(mounts, m.ContainerPath)
	}
	if diff := cmp.Diff([]string{"/data", "/etc/hosts", "/dev/termination-log"}, mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	layout := s.parts.Host.Layout
	for _, path := range []string{layout.HostsFile("u"), layout.TerminationLog("u", "c", 1), filepath.Join(layout.PodLogsDir("ns", "p", "u"), "c")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestStartContainerFails(t *testing.T) {
	for _, test := range []struct {
		name, call string
		err        error
		want       Failure
		event      string
		created    bool
	}{
		{"no image", "EnsurePresent", &ImageError{Reason: "ErrImagePull", Message: "no such image"},
			Failure{Reason: "ErrImagePull", Message: "no such image", RetryAt: caseTime.Add(retryMax)}, "", false},
		{"no ConfigMap", "For", errors.New(`configmap "c" not found`),
			Failure{Reason: "CreateContainerConfigError", Message: `configmap "c" not found`, Count: 1, RetryAt: caseTime.Add(retryFirst)},
			`Warning Failed Error: configmap "c" not found`, false},
		{"no mount", "Mounts", errors.New("no volume"),
			Failure{Reason: "CreateContainerConfigError", Message: "no volume", Count: 1, RetryAt: caseTime.Add(retryFirst)},
			"Warning Failed Error: no volume", false},
		{"not created", "CreateContainer", errors.New("no name"),
			Failure{Reason: "CreateContainerError", Message: "no name", Count: 1, RetryAt: caseTime.Add(retryFirst)},
			"Warning Failed Error: no name", false},
		{"not started", "StartContainer", errors.New("no program"),
			Failure{Reason: "RunContainerError", Message: "no program", Count: 1, RetryAt: caseTime.Add(retryFirst)},
			"Warning Failed Error: no program", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStageTest(t, testPod())
			s.do(Action{Kind: CreateSandbox})
			s.cri.fail[test.call] = test.err
			s.do(Action{Kind: StartContainer, Container: "c"})
			if diff := cmp.Diff(test.want, s.memory.Failures[OfContainer("c")]); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
			var events []string
			for _, e := range s.takeEvents() {
				if e != "Normal Created Container created" {
					events = append(events, e)
				}
			}
			if test.event == "" && len(events) > 0 || test.event != "" && !cmp.Equal([]string{test.event}, events) {
				t.Errorf("events %v, want %q", events, test.event)
			}
			if _, created := s.seen.Latest("c"); created != test.created || s.memory.Runs["c-0"].StartFailed != test.created {
				t.Errorf("created %t, memory %+v", created, s.memory.Runs["c-0"])
			}
		})
	}
}

func TestStartContainerWithoutSandbox(t *testing.T) {
	s := newStageTest(t, testPod())
	s.do(Action{Kind: StartContainer, Container: "c"})
	if got := s.memory.Failures[OfContainer("c")]; got.Reason != "CreateContainerConfigError" {
		t.Errorf("failure %+v", got)
	}
}

// TestStartContainerOfPodThatStops: nothing is created, and nothing is reported.
func TestStartContainerOfPodThatStops(t *testing.T) {
	s := newStageTest(t, testPod())
	s.do(Action{Kind: CreateSandbox})
	s.cri.took()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.doIn(ctx, Action{Kind: StartContainer, Container: "c"})
	if calls := s.cri.took(); !cmp.Equal([]string{"Grow"}, calls) {
		t.Errorf("calls %v", calls)
	}
	if events := s.takeEvents(); len(s.memory.Failures) > 0 || len(events) > 0 {
		t.Errorf("failures %v, events %v", s.memory.Failures, events)
	}
}

// TestStartEphemeralContainer joins the process namespace of its target, which must run.
func TestStartEphemeralContainer(t *testing.T) {
	pod := testPod()
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}, TargetContainerName: "c",
	}}
	s := newStageTest(t, pod)
	s.do(Action{Kind: CreateSandbox})
	s.do(Action{Kind: StartContainer, Container: "debug"})
	if got := s.memory.Failures[OfContainer("debug")].Message; got != "unable to find target container c" {
		t.Errorf("failure %q", got)
	}
	s.do(Action{Kind: StartContainer, Container: "c"})
	s.do(Action{Kind: StartContainer, Container: "debug"})
	if run, ran := s.seen.Latest("debug"); !ran || run.State != runtime.Running || len(s.memory.Failures) > 0 {
		t.Errorf("run %+v, failures %v", run, s.memory.Failures)
	}
}

// TestStartContainerWithImageVolume puts the ID of the volume's image into its mount (KEP-4639).
func TestStartContainerWithImageVolume(t *testing.T) {
	pod := testPod()
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data"}}
	s := newStageTest(t, pod)
	s.node.mounts = []*runtimeapi.Mount{{ContainerPath: "/data", Image: &runtimeapi.ImageSpec{UserSpecifiedImage: "data:1"}}}
	s.running()
	if got := s.cri.containers["c-0"].status.Mounts[0].Image.Image; got != "id of data:1" {
		t.Errorf("mounted image %q", got)
	}
}
