// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// summary returns a short text of a status.
func summary(s v1.PodStatus) []string {
	lines := []string{string(s.Phase) + reason(s.Reason, s.Message)}
	for _, c := range s.Conditions {
		lines = append(lines, fmt.Sprintf("%s %s%s", c.Type, c.Status, reason(c.Reason, c.Message)))
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range list {
			line := fmt.Sprintf("%s: %s", c.Name, stateSummary(c.State))
			if c.LastTerminationState.Terminated != nil {
				line += ", before " + stateSummary(c.LastTerminationState)
			}
			if c.RestartCount > 0 {
				line += fmt.Sprintf(", restarts %d", c.RestartCount)
			}
			if isTrue(c.Started) {
				line += ", started"
			}
			if c.Ready {
				line += ", ready"
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func reason(reason, message string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%s: %s)", reason, message)
}

func stateSummary(s v1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting" + reason(s.Waiting.Reason, s.Waiting.Message)
	case s.Terminated != nil:
		return fmt.Sprintf("ended %d", s.Terminated.ExitCode) + reason(s.Terminated.Reason, s.Terminated.Message)
	case s.Running != nil:
		return "running"
	}
	return "nothing"
}

func TestStatus(t *testing.T) {
	app := v1.Container{Name: "app", Image: "i"}
	always := v1.ContainerRestartPolicyAlways
	exited := func(name string, attempt uint32, code int32) runtime.Container {
		run := runtime.Container{Name: name, Attempt: attempt, State: runtime.Exited, ExitCode: code, Reason: "Completed",
			CreatedAt: caseTime.Add(-time.Minute), StartedAt: caseTime.Add(-time.Minute), FinishedAt: caseTime.Add(-time.Second)}
		if code != 0 {
			run.Reason = "Error"
		}
		return run
	}
	withInit := func(in Input, init ...v1.Container) Input {
		in.Pod.Spec.InitContainers = init
		return in
	}
	policy := func(in Input, p v1.RestartPolicy) Input {
		in.Pod.Spec.RestartPolicy = p
		return in
	}
	gated := scene(app).with(runningRun("app"))
	gated.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}, {ConditionType: "example.com/other"}}
	gated.Pod.Status.Conditions = []v1.PodCondition{{Type: "example.com/other", Status: v1.ConditionFalse}}
	fresh := scene(app)
	fresh.Runtime = &runtime.Pod{}
	failing := scene(app)
	failing.Memory.Failures = map[Subject]Failure{OfContainer("app"): {Reason: "ErrImagePull", Message: "no such image", RetryAt: caseTime.Add(time.Second)}}
	looping := exited("app", 2, 1)
	looping.BackOff = 40 * time.Second
	lost := scene(app)
	lost.Old = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://x", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	lost = policy(lost, v1.RestartPolicyNever)

	for _, test := range []struct {
		name string
		in   Input
		want []string
	}{
		{"new pod", fresh, []string{
			"Pending",
			"PodReadyToStartContainers False (PodSandboxNotReady: no pod sandbox exists)",
			"Initialized True",
			"Ready False (ContainersNotReady: containers with unready status: [app])",
			"ContainersReady False (ContainersNotReady: containers with unready status: [app])",
			"PodScheduled True",
			"app: waiting (ContainerCreating: )",
		}},
		{"running", scene(app).with(runningRun("app")), []string{
			"Running", "PodReadyToStartContainers True", "Initialized True", "Ready True", "ContainersReady True", "PodScheduled True",
			"app: running, started, ready",
		}},
		{"readiness gates", gated, []string{
			"Running", "example.com/other False", "PodReadyToStartContainers True", "Initialized True",
			`Ready False (ReadinessGatesNotReady: corresponding condition of pod readiness gate "example.com/gate" does not exist., the status of pod readiness gate "example.com/other" is not "True", but False)`,
			"ContainersReady True", "PodScheduled True",
			"app: running, started, ready",
		}},
		{"initializing", withInit(scene(app), v1.Container{Name: "one"}, v1.Container{Name: "two"}).with(exited("one", 0, 0)).with(runningRun("two")), []string{
			"Pending", "PodReadyToStartContainers True",
			"Initialized False (ContainersNotInitialized: containers with incomplete status: [two])",
			"Ready False (ContainersNotReady: containers with unready status: [app])",
			"ContainersReady False (ContainersNotReady: containers with unready status: [app])",
			"PodScheduled True",
			"one: ended 0 (Completed: ), ready", "two: running, started", "app: waiting (PodInitializing: )",
		}},
		{"failed initialization", policy(withInit(scene(app), v1.Container{Name: "one"}).with(exited("one", 0, 1)), v1.RestartPolicyNever), []string{
			"Failed", "PodReadyToStartContainers True",
			"Initialized False (ContainersNotInitialized: containers with incomplete status: [one])",
			"Ready False (PodFailed: )", "ContainersReady False (PodFailed: )", "PodScheduled True",
			"one: ended 1 (Error: )", "app: waiting (PodInitializing: )",
		}},
		{"sidecar keeps a done pod running until it ends", policy(withInit(scene(app), v1.Container{Name: "side", RestartPolicy: &always}).with(runningRun("side")).with(exited("app", 0, 0)), v1.RestartPolicyNever), []string{
			"Running", "PodReadyToStartContainers True", "Initialized True",
			"Ready False (ContainersNotReady: containers with unready status: [app])",
			"ContainersReady False (ContainersNotReady: containers with unready status: [app])",
			"PodScheduled True",
			"side: running, started, ready", "app: ended 0 (Completed: )",
		}},
		{"succeeded", policy(scene(app).with(exited("app", 0, 0)), v1.RestartPolicyOnFailure), []string{
			"Succeeded", "PodReadyToStartContainers True", "Initialized True (PodCompleted: )",
			"Ready False (PodCompleted: )", "ContainersReady False (PodCompleted: )", "PodScheduled True",
			"app: ended 0 (Completed: )",
		}},
		{"crash loop", scene(app).with(looping), []string{
			"Running", "PodReadyToStartContainers True", "Initialized True",
			"Ready False (ContainersNotReady: containers with unready status: [app])",
			"ContainersReady False (ContainersNotReady: containers with unready status: [app])",
			"PodScheduled True",
			"app: waiting (CrashLoopBackOff: back-off 40s restarting failed container=app pod=p_ns(u)), before ended 1 (Error: ), restarts 2",
		}},
		{"no image", failing, []string{
			"Pending", "PodReadyToStartContainers True", "Initialized True",
			"Ready False (ContainersNotReady: containers with unready status: [app])",
			"ContainersReady False (ContainersNotReady: containers with unready status: [app])",
			"PodScheduled True",
			"app: waiting (ErrImagePull: no such image)",
		}},
		{"lost by the runtime", lost, []string{
			"Failed", "PodReadyToStartContainers True", "Initialized True",
			"Ready False (PodFailed: )", "ContainersReady False (PodFailed: )", "PodScheduled True",
			"app: waiting (ContainerCreating: ), before ended 137 (ContainerStatusUnknown: The container could not be located when the pod was deleted.  The container used to be Running), restarts 1",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := Decide(test.in)
			if diff := cmp.Diff(test.want, summary(out.Status)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			for _, c := range out.Status.Conditions {
				if isOwnCondition(c.Type) && c.ObservedGeneration != 3 {
					t.Errorf("condition %s is of generation %d", c.Type, c.ObservedGeneration)
				}
			}
		})
	}
}

func TestTransitionTimesChangeOnlyWithTheStatus(t *testing.T) {
	in := scene(v1.Container{Name: "app", Image: "i"}).with(runningRun("app"))
	in.Old = Decide(in).Status
	in.Now = caseTime.Add(time.Hour)
	if diff := cmp.Diff(in.Old, Decide(in).Status); diff != "" {
		t.Errorf("an hour later, the unchanged status differs:\n%s", diff)
	}
}

func TestTerminationMessagesShareTheirLimit(t *testing.T) {
	long := runtime.Container{Name: "a", State: runtime.Exited, StartedAt: caseTime, ExitCode: 1, Message: string(make([]byte, 9000))}
	in := scene(v1.Container{Name: "a"}, v1.Container{Name: "b"}, v1.Container{Name: "c"}).with(long)
	in.Pod.Spec.RestartPolicy = v1.RestartPolicyNever
	if got := len(Decide(in).Status.ContainerStatuses[0].State.Terminated.Message); got != 4096 {
		t.Errorf("one of three messages has %d bytes", got)
	}
}

func TestActiveDeadline(t *testing.T) {
	in := scene(v1.Container{Name: "app", Image: "i"}).with(runningRun("app"))
	in.Pod.Spec.ActiveDeadlineSeconds = new(int64(60))
	in.Old.StartTime = &metav1.Time{Time: caseTime.Add(-59 * time.Second)}
	in.Old.Phase = v1.PodRunning
	if out := Decide(in); out.Stopping || !out.Wake.Equal(caseTime.Add(time.Second)) {
		t.Errorf("a second before its deadline: stopping %t, wakes at %v", out.Stopping, out.Wake)
	}
	in.Now = caseTime.Add(time.Second)
	out := Decide(in)
	if !out.Stopping || out.Status.Phase != v1.PodRunning {
		t.Errorf("at its deadline: stopping %t, phase %s while its container still runs", out.Stopping, out.Status.Phase)
	}
	in.Memory, in.Old = out.Memory, out.Status
	in.Runtime = &runtime.Pod{Sandboxes: in.Runtime.Sandboxes}
	in = in.with(runtime.Container{Name: "app", State: runtime.Exited, StartedAt: caseTime, ExitCode: 0})
	if s := Decide(in).Status; s.Phase != v1.PodFailed || s.Reason != "DeadlineExceeded" {
		t.Errorf("after its deadline: %s %s", s.Phase, s.Reason)
	}
}

// TestFinalStatusStays: a new agent does not change the status of a refused pod whose containers are gone.
func TestFinalStatusStays(t *testing.T) {
	in := scene(v1.Container{Name: "app", Image: "i"})
	in.Runtime = &runtime.Pod{}
	in.Pod.Status = v1.PodStatus{
		Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: too much", StartTime: &metav1.Time{Time: caseTime},
		Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}},
	}
	in.Old = in.Pod.Status
	if diff := cmp.Diff(in.Pod.Status, Decide(in).Status); diff != "" {
		t.Errorf("the status changed:\n%s", diff)
	}
}

// TestStatusWhileReplaced: a container whose image changed stays running and ready in the status for a second after its run
// has ended, unless its pod stops or its next run cannot start.
func TestStatusWhileReplaced(t *testing.T) {
	run := runningRun("app")
	run.Hash = "other"
	in := scene(v1.Container{Name: "app", Image: "i"}).with(run)
	in.Old = Decide(in).Status
	shown := in.Old.ContainerStatuses[0]
	if shown.State.Running == nil || !shown.Ready || conditionOf(in.Old.Conditions, v1.PodReady).Status != v1.ConditionTrue {
		t.Fatalf("before: %+v", in.Old)
	}
	run.State, run.ExitCode, run.FinishedAt = runtime.Exited, 2, caseTime
	next := run
	next.State, next.Attempt, next.ID = runtime.Created, 1, "app-1"
	in.Runtime = &runtime.Pod{Sandboxes: in.Runtime.Sandboxes}
	for name, test := range map[string]struct {
		change func(*Input)
		ready  v1.ConditionStatus
	}{
		"ended":                   {ready: v1.ConditionTrue},
		"the next run is created": {change: func(in *Input) { *in = in.with(next) }, ready: v1.ConditionTrue},
		"a second later":          {change: func(in *Input) { in.Now = caseTime.Add(replacementPeriod) }, ready: v1.ConditionFalse},
		"its start fails": {change: func(in *Input) {
			in.Memory.Failures = map[Subject]Failure{OfContainer("app"): {Reason: "ErrImagePull"}}
		}, ready: v1.ConditionFalse},
		"the pod stops":         {change: func(in *Input) { in.Memory.StoppingSince = caseTime }, ready: v1.ConditionFalse},
		"the pod is deleted":    {change: func(in *Input) { in.Pod.DeletionTimestamp = &metav1.Time{Time: caseTime} }, ready: v1.ConditionFalse},
		"another run was shown": {change: func(in *Input) { in.Old.ContainerStatuses[0].ContainerID = "r://app-7" }, ready: v1.ConditionFalse},
		"its resources changed": {change: func(in *Input) {
			in.Pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
			in.Runtime.Containers[0].Hash = criconfig.Hash(in.Pod, &in.Pod.Spec.Containers[0])
			in.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		}, ready: v1.ConditionFalse},
		"the image did not change": {change: func(in *Input) { in.Runtime.Containers[0].Hash = "" }, ready: v1.ConditionFalse},
	} {
		changed := in.with(run)
		changed.Pod, changed.Old = in.Pod.DeepCopy(), *in.Old.DeepCopy()
		if test.change != nil {
			test.change(&changed)
		}
		out := Decide(changed)
		if got := conditionOf(out.Status.Conditions, v1.PodReady).Status; got != test.ready {
			t.Errorf("%s: Ready is %s, want %s: %+v", name, got, test.ready, out.Status.ContainerStatuses[0])
		}
		if until := caseTime.Add(replacementPeriod); test.ready == v1.ConditionTrue && !out.Wake.Equal(until) {
			t.Errorf("%s: the next decision is at %v, want %v", name, out.Wake, until)
		}
		if diff := cmp.Diff(shown, out.Status.ContainerStatuses[0]); test.ready == v1.ConditionTrue && diff != "" {
			t.Errorf("%s: the container's status (-before +after):\n%s", name, diff)
		}
	}
}

// A run that is replaced whatever its exit code does not end in the API, which would not let its container run again.
func TestStatusOfReplacedRun(t *testing.T) {
	for name, policy := range map[string]v1.RestartPolicy{"changed": v1.RestartPolicyNever, "unhealthy": v1.RestartPolicyOnFailure} {
		run := exitedRun("app", 0)
		in := scene(v1.Container{Name: "app", Image: "i"})
		in.Pod.Spec.RestartPolicy = policy
		if name == "changed" {
			run.Hash = "other"
		} else {
			in = in.remembering("app-0", RunMemory{Liveness: new(false), Deadline: caseTime})
		}
		next := run
		next.State, next.Attempt, next.ExitCode = runtime.Created, 1, 0
		for begun, in := range map[bool]Input{false: in.with(run), true: in.with(run).with(next)} {
			out := Decide(in)
			state := out.Status.ContainerStatuses[0].State
			if state.Waiting == nil || state.Waiting.Reason != reasonCreating || out.Status.Phase != v1.PodRunning || out.Stopping {
				t.Errorf("%s, next run created: %t: %+v, phase %s, stopping %t", name, begun, state, out.Status.Phase, out.Stopping)
			}
		}
		in.Memory.StoppingSince = caseTime
		if out := Decide(in.with(run)); out.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("%s: a run of a pod that stops has not ended: %+v", name, out.Status.ContainerStatuses[0].State)
		}
	}
}
