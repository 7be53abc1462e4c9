// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// restartingScene is a pod that must not restart, whose trigger restarts all containers when it exits with 42.
func restartingScene() Input {
	trigger := v1.Container{Name: "trigger", RestartPolicy: new(v1.ContainerRestartPolicyNever), RestartPolicyRules: []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}}
	in := scene(trigger, v1.Container{Name: "app"})
	in.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	in.Pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
	in = in.with(exitedRun("init", 0)).with(runningRun("app")).with(exitedRun("trigger", 42))
	in.Old = v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}}
	return in
}

func exitedRun(name string, code int32) runtime.Container {
	return runtime.Container{
		Name: name, State: runtime.Exited, ExitCode: code, StartedAt: caseTime.Add(-time.Minute), CreatedAt: caseTime.Add(-time.Minute), FinishedAt: caseTime,
	}
}

// The end of the trigger kills the app without grace, then initialization starts over, whatever the pod's restart policy.
func TestRestartAllContainers(t *testing.T) {
	in := restartingScene()
	out := Decide(in)
	if diff := cmp.Diff([]string{"StopContainer/app-0 in 0s"}, actionsOf(out)); diff != "" {
		t.Errorf("while the app runs (-want +got):\n%s", diff)
	}
	c := conditionOf(out.Status.Conditions, v1.AllContainersRestarting)
	if c == nil || c.Status != v1.ConditionTrue || c.Reason != "RestartAllContainersStarted" || c.Message != "container exited with restart policy rule" {
		t.Errorf("condition %+v", c)
	}
	if diff := cmp.Diff([]string{"Normal Killing killing"}, messagesOf(out)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	in.Old = out.Status
	in.Runtime.Containers[1].State, in.Runtime.Containers[1].ExitCode = runtime.Exited, 137
	out = Decide(in)
	if diff := cmp.Diff([]string{"StartContainer/init"}, actionsOf(out)); diff != "" {
		t.Errorf("when all have ended (-want +got):\n%s", diff)
	}
	if a := out.Actions[0]; a.Life != 1 || a.Attempt != 1 {
		t.Errorf("starts attempt %d in life %d", a.Attempt, a.Life)
	}
	for name, code := range map[string]int32{"init": 0, "trigger": 42, "app": 137} {
		s := statusNamed(out.Status, name)
		if s.State.Waiting == nil || s.State.Waiting.Reason != "RestartingAllContainers" || s.LastTerminationState.Terminated.ExitCode != code {
			t.Errorf("%s: %+v, before %+v", name, s.State, s.LastTerminationState)
		}
	}
	if out.Status.Phase != v1.PodRunning || conditionOf(out.Status.Conditions, v1.PodInitialized).Status != v1.ConditionTrue {
		t.Errorf("status %v", summary(out.Status))
	}

	// Once a container of the next life exists, the restart is over.
	again := runningRun("init")
	again.Attempt, again.Life = 1, 1
	out = Decide(in.with(again))
	if c := conditionOf(out.Status.Conditions, v1.AllContainersRestarting); c.Status != v1.ConditionFalse {
		t.Errorf("condition %+v", c)
	}
}

// A start that began before the trigger ended is waited for: its container belongs to the life that ended.
func TestRestartAllContainersWaitsForStart(t *testing.T) {
	in := restartingScene()
	in.Runtime.Containers[1].State = runtime.Exited
	in.InFlight = map[ActionKey]bool{{StartContainer, "app"}: true}
	if got := actionsOf(Decide(in)); len(got) > 0 {
		t.Errorf("actions %v", got)
	}
}

// A pod that is being deleted restarts nothing.
func TestRestartAllContainersOfDeletedPod(t *testing.T) {
	in := restartingScene()
	in.Deleted = true
	out := Decide(in)
	if c := conditionOf(out.Status.Conditions, v1.AllContainersRestarting); c != nil && c.Status == v1.ConditionTrue {
		t.Errorf("condition %+v", c)
	}
	for _, a := range out.Actions {
		if a.Kind == StartContainer {
			t.Errorf("starts %s", a.Container)
		}
	}
}
