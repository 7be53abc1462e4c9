// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

func TestCreateSandbox(t *testing.T) {
	pod := testPod()
	pod.Spec.RuntimeClassName = new("sandboxed")
	s := newStageTest(t, pod)
	s.memory.Failures[OfSandbox] = Failure{Reason: "FailedCreatePodSandBox"}
	s.do(Action{Kind: CreateSandbox, Attempt: 2})
	if diff := cmp.Diff([]string{"Ensure", "RunPodSandbox sandbox-2 handler of sandboxed"}, s.cri.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if sandbox, ready := s.seen.ReadySandbox(); !ready || sandbox.Attempt != 2 {
		t.Errorf("sandbox %+v, ready %t", sandbox, ready)
	}
	if parent := s.cri.configs["sandbox-2"]; parent != "/pods/u" {
		t.Errorf("cgroup parent %q", parent)
	}
	if _, err := os.Stat(s.parts.Host.Layout.PodLogsDir("ns", "p", "u")); err != nil {
		t.Error(err)
	}
	if len(s.memory.Failures) > 0 || s.memory.Cgroup == nil || *s.memory.Cgroup != criconfig.PodSize(pod) {
		t.Errorf("failures %v, cgroup %v", s.memory.Failures, s.memory.Cgroup)
	}
}

// TestCreateSandboxAnnouncesPod: a failure to announce is no failure of the pod.
func TestCreateSandboxAnnouncesPod(t *testing.T) {
	for name, tt := range map[string]struct {
		hostNetwork bool
		want        []string
	}{
		"pod network":  {false, []string{"sandbox-1"}},
		"host network": {true, nil},
	} {
		pod := testPod()
		pod.Spec.HostNetwork = tt.hostNetwork
		s := newStageTest(t, pod)
		var announced []string
		s.parts.AnnouncePod = func(sandbox string) error {
			announced = append(announced, sandbox)
			return errors.New("no such interface")
		}
		s.do(Action{Kind: CreateSandbox, Attempt: 1})
		s.toFinish.Wait()
		if diff := cmp.Diff(tt.want, announced); diff != "" || len(s.memory.Failures) > 0 {
			t.Errorf("%s: failures %v, announced (-want +got):\n%s", name, s.memory.Failures, diff)
		}
	}
}

func TestCreateSandboxFails(t *testing.T) {
	const message = "Failed to create pod sandbox: no network"
	for _, call := range []string{"Ensure", "RunPodSandbox"} {
		s := newStageTest(t, testPod())
		s.cri.fail[call] = errors.New("no network")
		s.do(Action{Kind: CreateSandbox})
		if got := s.memory.Failures[OfSandbox]; got.Reason != "FailedCreatePodSandBox" || got.Message != message || s.memory.Cgroup != nil {
			t.Errorf("%s: failure %+v, cgroup %v", call, got, s.memory.Cgroup)
		}
		if diff := cmp.Diff([]string{"Warning FailedCreatePodSandBox " + message}, s.takeEvents()); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", call, diff)
		}
	}
}

// A node without a DNS server of the cluster says so at its start, not at each pod.
func TestCreateSandboxWithoutClusterDNS(t *testing.T) {
	pod := testPod()
	pod.Spec.DNSPolicy = v1.DNSClusterFirst
	s := newStageTest(t, pod)
	s.parts.Host.DNS.Servers = nil
	s.do(Action{Kind: CreateSandbox})
	if events := s.takeEvents(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
}
