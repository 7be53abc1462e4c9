// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// TestTermination: containers get the shorter of two grace periods, and the phase is final when they have exited.
func TestTermination(t *testing.T) {
	for _, allowed := range []time.Duration{5 * time.Second, time.Hour} {
		in := scene(v1.Container{Name: "c"}).with(runningRun("c"))
		in.Old.Phase = v1.PodRunning
		in.Memory.Terminated = &Termination{Refusal: Refusal{Reason: "Terminated", Message: "why"}, Grace: allowed}
		out := Decide(in)
		if !out.Stopping || out.Status.Phase != v1.PodRunning {
			t.Errorf("stopping %t, phase %s while a container runs", out.Stopping, out.Status.Phase)
		}
		if got, want := out.Actions[0].Deadline, caseTime.Add(min(allowed, 30*time.Second)); !got.Equal(want) {
			t.Errorf("the container is killed at %v, want %v", got, want)
		}
		if c := conditionOf(out.Status.Conditions, v1.DisruptionTarget); c == nil || c.Reason != v1.PodReasonTerminationByKubelet || c.Message != "why" {
			t.Errorf("condition %+v", c)
		}
		ended := runningRun("c")
		ended.State, ended.FinishedAt = runtime.Exited, caseTime
		next := scene(v1.Container{Name: "c"}).with(ended)
		next.Memory, next.Old = out.Memory, out.Status
		final := Decide(next)
		if s := final.Status; s.Phase != v1.PodFailed || s.Reason != "Terminated" || s.Message != "why" {
			t.Errorf("phase %s, reason %q, message %q", s.Phase, s.Reason, s.Message)
		}
		for _, a := range final.Actions {
			if a.Kind == StartContainer {
				t.Error("the container is started again")
			}
		}
	}
}
