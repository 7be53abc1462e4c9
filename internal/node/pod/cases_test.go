// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

var caseTime = time.Unix(1_800_000_000, 0)

// scene returns an Input for a pod whose volumes and sandbox are ready.
func scene(containers ...v1.Container) Input {
	grace := int64(30)
	return Input{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Generation: 3},
			Spec:       v1.PodSpec{Containers: containers, RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace},
		},
		Runtime: &runtime.Pod{Sandboxes: []runtime.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}}},
		Memory:  Memory{VolumesReady: true},
		HostIPs: []string{"192.0.2.1"}, RuntimeName: "containerd", Now: caseTime,
	}
}

// with returns the input with one more run of a container.
func (in Input) with(run runtime.Container) Input {
	run.SandboxID = "s"
	if run.ID == "" {
		run.ID = fmt.Sprintf("%s-%d", run.Name, run.Attempt)
	}
	if c := containerOf(in.Pod, run.Name); c != nil && run.Hash == "" {
		run.Hash = criconfig.Hash(in.Pod, c)
	}
	held := *in.Runtime
	held.Containers = append([]runtime.Container{run}, held.Containers...)
	in.Runtime = &held
	return in
}

func onFailure(in Input) Input {
	in.Pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	return in
}

func runningRun(name string) runtime.Container {
	return runtime.Container{Name: name, State: runtime.Running, StartedAt: caseTime.Add(-time.Minute)}
}

func (in Input) remembering(id string, run RunMemory) Input {
	in.Memory = in.Memory.clone()
	in.Memory.Runs[id] = run
	return in
}

func actionsOf(out Output) []string {
	var list []string
	for _, a := range out.Actions {
		text := a.Key().String()
		if !a.Deadline.IsZero() {
			text += fmt.Sprintf(" in %v", a.Deadline.Sub(caseTime))
		}
		list = append(list, text)
	}
	return list
}

func messagesOf(out Output) []string {
	var list []string
	for _, e := range out.Events {
		list = append(list, e.Type+" "+e.Reason+" "+e.Message)
	}
	return list
}

func TestDecisions(t *testing.T) {
	app := v1.Container{Name: "app", Image: "i"}
	probed := app
	probed.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(5))}
	hooked := app
	hooked.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}, PreStop: &v1.LifecycleHandler{}}
	second := v1.Container{Name: "second", Image: "i"}
	deleted := func(in Input, seconds int64) Input {
		in.Pod = in.Pod.DeepCopy()
		in.Pod.DeletionTimestamp, in.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: caseTime}, &seconds
		return in
	}
	never := func(in Input) Input {
		in.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
		return in
	}
	fresh := scene(app)
	fresh.Runtime, fresh.Memory = &runtime.Pod{}, Memory{}
	mounted, unmounted := fresh, fresh
	mounted.Memory.VolumesReady = true
	unmounted.Memory.Failures = map[Subject]Failure{OfVolumes: {RetryAt: caseTime.Add(time.Second)}}

	claimed := func(in Input, ready bool) Input {
		in.Pod = in.Pod.DeepCopy()
		in.Pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c"}}
		in.Memory.ClaimsReady = ready
		return in
	}
	extended := mounted
	extended.Pod = mounted.Pod.DeepCopy()
	extended.Pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
	undriven := claimed(mounted, false)
	undriven.Memory.Failures = map[Subject]Failure{OfClaims: {RetryAt: caseTime.Add(time.Second)}}

	for _, test := range []struct {
		name    string
		in      Input
		actions []string
		events  []string
	}{
		{name: "volumes are prepared first", in: fresh, actions: []string{"PrepareVolumes/"}},
		{name: "no sandbox without volumes", in: unmounted},
		{name: "then claims", in: claimed(mounted, false), actions: []string{"PrepareClaims/"}},
		{name: "a claim for extended resources", in: extended, actions: []string{"PrepareClaims/"}},
		{name: "no sandbox without claims", in: undriven},
		{name: "sandbox after the claims", in: claimed(mounted, true), actions: []string{"CreateSandbox/"}},
		{name: "a new agent does not prepare the claims of a pod with a sandbox", in: claimed(scene(app), false), actions: []string{"StartContainer/app"}},
		{name: "sandbox after the volumes", in: mounted, actions: []string{"CreateSandbox/"}},
		{name: "app containers start together", in: scene(app, second), actions: []string{"StartContainer/app", "StartContainer/second"}},
		{name: "app containers wait for a postStart hook", in: scene(hooked, second), actions: []string{"StartContainer/app"}},
		{name: "postStart hook before the next container", in: scene(hooked, second).with(runningRun("app")), actions: []string{"PostStart/app-0"}},
		{
			name:    "after the hook, the others start",
			in:      scene(hooked, second).with(runningRun("app")).remembering("app-0", RunMemory{Hooked: true}),
			actions: []string{"StartContainer/second"},
		},
		{
			name:    "a failed postStart hook stops its container",
			in:      scene(hooked).with(runningRun("app")).remembering("app-0", RunMemory{HookFailed: true, PreStopped: true}),
			actions: []string{"StopContainer/app-0 in 30s"},
			events:  []string{"Normal Killing FailedPostStartHook"},
		},
		{
			name:    "a failed liveness probe with a grace period of its own",
			in:      scene(probed).with(runningRun("app")).remembering("app-0", RunMemory{Liveness: new(false)}),
			actions: []string{"StopContainer/app-0 in 5s"},
			events:  []string{"Normal Killing Container app failed liveness probe, will be restarted"},
		},
		{
			name:    "a container that exits with 0 after a failed probe",
			in:      onFailure(scene(app)).with(exitedRun("app", 0)).remembering("app-0", RunMemory{Startup: new(false), Deadline: caseTime}),
			actions: []string{"StartContainer/app"},
		},
		{
			name:    "a container that exits with 0 before it is stopped for a failed probe",
			in:      onFailure(scene(app)).with(exitedRun("app", 0)).remembering("app-0", RunMemory{Startup: new(false)}),
			actions: []string{"StopSandbox/s", "DetachContent/"},
		},
		{
			name:    "a failed startup probe in a pod that never restarts",
			in:      never(scene(app)).with(runningRun("app")).remembering("app-0", RunMemory{Startup: new(false)}),
			actions: []string{"StopContainer/app-0 in 30s"},
			events:  []string{"Normal Killing Container app failed startup probe"},
		},
		{
			name:    "a changed image",
			in:      scene(app).with(runtime.Container{Name: "app", State: runtime.Running, Hash: "other"}),
			actions: []string{"StopContainer/app-0 in 30s"},
			events:  []string{"Normal Killing Container app definition changed, will be restarted"},
		},
		{name: "a container that was created and not started", in: scene(app).with(runtime.Container{Name: "app", State: runtime.Created}), actions: []string{"RemoveContainer/app-0"}},
		{
			name:    "an interrupted start does not count as a run",
			in:      never(scene(app)).with(runtime.Container{Name: "app", State: runtime.Exited, ExitCode: 128, FinishedAt: caseTime}),
			actions: []string{"RemoveContainer/app-0"},
		},
		{
			name:    "a failed start counts as a run",
			in:      never(scene(app)).with(runtime.Container{Name: "app", State: runtime.Exited, ExitCode: 128, FinishedAt: caseTime}).remembering("app-0", RunMemory{StartFailed: true}),
			actions: []string{"StopSandbox/s", "DetachContent/"},
		},
		{
			name:    "deletion: preStop first",
			in:      deleted(scene(hooked).with(runningRun("app")), 10),
			actions: []string{"PreStop/app-0 in 10s"},
			events:  []string{"Normal Killing Stopping container app"},
		},
		{
			name:    "then the stop signal, with no second event",
			in:      deleted(scene(hooked).with(runningRun("app")).remembering("app-0", RunMemory{PreStopped: true, Deadline: caseTime.Add(10 * time.Second)}), 10),
			actions: []string{"StopContainer/app-0 in 10s"},
		},
		{
			name:    "a shorter grace period moves the deadline",
			in:      deleted(scene(app).with(runningRun("app")).remembering("app-0", RunMemory{Deadline: caseTime.Add(20 * time.Second)}), 1),
			actions: []string{"StopContainer/app-0 in 1s"},
		},
		{
			name:    "a longer grace period does not",
			in:      deleted(scene(app).with(runningRun("app")).remembering("app-0", RunMemory{Deadline: caseTime.Add(time.Second)}), 20),
			actions: []string{"StopContainer/app-0 in 1s"},
		},
		{
			name:    "backoff is reported",
			in:      scene(app).with(runtime.Container{Name: "app", State: runtime.Exited, ExitCode: 1, CreatedAt: caseTime.Add(-time.Minute), StartedAt: caseTime.Add(-time.Minute), FinishedAt: caseTime.Add(-time.Second), BackOff: 10 * time.Second}),
			actions: nil,
			events:  []string{"Warning BackOff Back-off restarting failed container app in pod p_ns(u)"},
		},
		{
			name:    "and a restart follows",
			in:      scene(app).with(runtime.Container{Name: "app", State: runtime.Exited, ExitCode: 1, CreatedAt: caseTime.Add(-time.Minute), StartedAt: caseTime.Add(-time.Minute), FinishedAt: caseTime.Add(-10 * time.Second), BackOff: 10 * time.Second}),
			actions: []string{"StartContainer/app"},
		},
		{
			name:    "a completed pod stops its sandbox",
			in:      never(scene(app)).with(runtime.Container{Name: "app", State: runtime.Exited, StartedAt: caseTime}),
			actions: []string{"StopSandbox/s", "DetachContent/"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := Decide(test.in)
			if diff := cmp.Diff(test.actions, actionsOf(out)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.events, messagesOf(out)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideDoesNotChangeItsInput(t *testing.T) {
	in := scene(v1.Container{Name: "app", Image: "i"}).with(runningRun("app")).remembering("app-0", RunMemory{Liveness: new(false)})
	Decide(in)
	if !in.Memory.Runs["app-0"].Deadline.IsZero() {
		t.Error("the decision modified its input")
	}
}

func TestRememberedRunsStayReady(t *testing.T) {
	c := v1.Container{Name: "app", Image: "i", StartupProbe: &v1.Probe{}, ReadinessProbe: &v1.Probe{}, Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}}
	in := scene(c).with(runningRun("app"))
	in.Memory = Remember(&v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://app-0", Started: new(true), Ready: true,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}})
	in.Memory.VolumesReady = true
	out := Decide(in)
	if len(out.Actions) > 0 {
		t.Errorf("a new agent does %v, although the container runs", actionsOf(out))
	}
	if c := conditionOf(out.Status.Conditions, v1.PodReady); c.Status != v1.ConditionTrue {
		t.Errorf("the pod is no longer ready: %+v", c)
	}
}

// TestPhaseWaitsForClaims: a pod is over in the API only when its claims are released, because other pods may
// get them then.
func TestPhaseWaitsForClaims(t *testing.T) {
	in := scene(v1.Container{Name: "app", Image: "i"}).with(runtime.Container{Name: "app", State: runtime.Exited, StartedAt: caseTime})
	in.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	in.Pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c"}}
	in.Old.Phase = v1.PodRunning
	if phase := Decide(in).Status.Phase; phase != v1.PodRunning {
		t.Errorf("phase %s before the release", phase)
	}
	in.Memory.ClaimsReleased = true
	if phase := Decide(in).Status.Phase; phase != v1.PodSucceeded {
		t.Errorf("phase %s after the release", phase)
	}
}
