// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// TestContainerAwaitsPolicies: a container is created, and starts when the pod's policies are in force.
func TestContainerAwaitsPolicies(t *testing.T) {
	s := newStageTest(t, testPod())
	var asked []string
	s.parts.AwaitPod = func(_ context.Context, pod *v1.Pod, address netip.Addr) error {
		if slices.Contains(s.cri.took(), "StartContainer c-0") {
			t.Error("started before")
		}
		asked = append(asked, string(pod.UID)+" "+address.String())
		return nil
	}
	s.running()
	if !slices.Equal(asked, []string{"u 10.0.0.2"}) {
		t.Errorf("waited for %v", asked)
	}
}

// TestPoliciesMissing: after the limit, the container is left created, which does not count as a restart.
func TestPoliciesMissing(t *testing.T) {
	s := newStageTest(t, testPod())
	s.parts.AwaitPod = func(ctx context.Context, _ *v1.Pod, _ netip.Addr) error {
		go func() {
			for !s.clock.HasWaiters() {
				time.Sleep(time.Millisecond)
			}
			s.clock.Step(networkLimit)
		}()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.do(Action{Kind: CreateSandbox})
	s.do(Action{Kind: StartContainer, Container: "c"})
	run, _ := s.seen.Latest("c")
	failure := s.memory.Failures[OfContainer("c")]
	if run.State != runtime.Created || s.memory.Runs[run.ID].StartFailed || failure.Message != errNetworkMissing.Error() {
		t.Errorf("run %+v, memory %+v, failure %+v", run, s.memory.Runs, failure)
	}

	// The next decision begins again, without an event of a restart.
	in := Input{Pod: s.pod, Runtime: s.seen, Memory: s.memory, Now: caseTime}
	in.Memory.Prepared(s.pod)
	out := Decide(in)
	if len(out.Actions) != 1 || out.Actions[0].Kind != RemoveContainer {
		t.Errorf("actions %v", out.Actions)
	}
}

// TestStopWhileAwaitingPolicies: the wait of a pod that is to stop ends, without a failure.
func TestStopWhileAwaitingPolicies(t *testing.T) {
	s := newStageTest(t, testPod())
	ctx, cancel := context.WithCancel(t.Context())
	s.parts.AwaitPod = func(ctx context.Context, _ *v1.Pod, _ netip.Addr) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.do(Action{Kind: CreateSandbox})
	s.doIn(ctx, Action{Kind: StartContainer, Container: "c"})
	run, _ := s.seen.Latest("c")
	if run.State != runtime.Created || len(s.memory.Failures) > 0 {
		t.Errorf("run %+v, failures %v", run, s.memory.Failures)
	}
}

// TestNoWaitInTheNodesNetwork: policies do not apply to pods in the node's network.
func TestNoWaitInTheNodesNetwork(t *testing.T) {
	pod := testPod()
	pod.Spec.HostNetwork = true
	s := newStageTest(t, pod)
	s.parts.AwaitPod = func(context.Context, *v1.Pod, netip.Addr) error {
		t.Error("waits")
		return nil
	}
	s.do(Action{Kind: CreateSandbox})
	s.do(Action{Kind: StartContainer, Container: "c"})
}
