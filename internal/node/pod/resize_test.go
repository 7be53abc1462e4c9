// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/rootdir"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

func requirements(cpu, memory string) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

func sized(name, cpu, memory string) v1.Container {
	return v1.Container{Name: name, Image: "i", Resources: requirements(cpu, memory)}
}

// grown returns a scene with a running container whose allocated CPU was doubled in generation 3.
func grown(policy ...v1.ContainerResizePolicy) Input {
	created := sized("app", "100m", "64Mi")
	created.ResizePolicy = policy
	now := created
	now.Resources = requirements("200m", "64Mi")
	in := scene(now)
	in = in.with(runtime.Container{
		Name: "app", State: runtime.Running, StartedAt: caseTime.Add(-time.Minute),
		Hash: criconfig.Hash(in.Pod, &created), Size: criconfig.ContainerSize(in.Pod, &created).String(),
	})
	in.Resize = Resize{Allocated: 3}
	return in
}

func resizeCondition(s v1.PodStatus, t v1.PodConditionType) v1.PodCondition {
	if c := conditionOf(s.Conditions, t); c != nil {
		return *c
	}
	return v1.PodCondition{}
}

func cpuOf(s v1.PodStatus) string {
	c := statusNamed(s, "app")
	return c.AllocatedResources.Cpu().String() + " allocated, " + c.Resources.Requests.Cpu().String() + "/" + c.Resources.Limits.Cpu().String()
}

// TestResizeOfInitContainer: a running init container is resized as an app container is; one that has not run yet
// starts with its new size, and one that has completed is not started again.
func TestResizeOfInitContainer(t *testing.T) {
	created := sized("init", "100m", "64Mi")
	for name, test := range map[string]struct {
		state   runtime.State
		policy  v1.ResourceResizeRestartPolicy
		actions []string
	}{
		"running":                  {runtime.Running, v1.NotRequired, []string{"ResizePod/"}},
		"running, has to restart":  {runtime.Running, v1.RestartContainer, []string{"StopContainer/init-0 in 30s"}},
		"completed":                {runtime.Exited, v1.NotRequired, []string{"StartContainer/app"}},
		"completed, would restart": {runtime.Exited, v1.RestartContainer, []string{"StartContainer/app"}},
	} {
		in := scene(sized("app", "100m", "64Mi"))
		created.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: test.policy}}
		now := created
		now.Resources = requirements("200m", "64Mi")
		in.Pod.Spec.InitContainers = []v1.Container{now}
		in = in.with(runtime.Container{
			Name: "init", State: test.state, StartedAt: caseTime.Add(-time.Minute), FinishedAt: caseTime,
			Hash: criconfig.Hash(in.Pod, &created), Size: criconfig.ContainerSize(in.Pod, &created).String(),
		})
		in.Resize = Resize{Allocated: 3}
		size := criconfig.PodSize(in.Pod)
		in.Memory.Cgroup = &size
		if diff := cmp.Diff(test.actions, actionsOf(Decide(in))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}

func TestResizeInPlace(t *testing.T) {
	in := grown()
	out := Decide(in)
	if diff := cmp.Diff([]string{"ResizePod/"}, actionsOf(out)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if got, want := cpuOf(out.Status), "200m allocated, 100m/100m"; got != want {
		t.Errorf("in progress: %s, want %s", got, want)
	}
	if c := resizeCondition(out.Status, v1.PodResizeInProgress); c.Status != v1.ConditionTrue || c.Reason != "" || c.ObservedGeneration != 3 {
		t.Errorf("condition %+v", c)
	}
	// A later generation does not change the resize in progress.
	in.Pod.Generation, in.Old, in.Memory = 4, out.Status, out.Memory
	if c := resizeCondition(Decide(in).Status, v1.PodResizeInProgress); c.ObservedGeneration != 3 {
		t.Errorf("condition %+v", c)
	}
	in.Memory.Resized(in.Pod, in.Runtime.Containers)
	out = Decide(in)
	if len(out.Actions) != 0 || resizeCondition(out.Status, v1.PodResizeInProgress).Type != "" {
		t.Errorf("when it is done: actions %v, conditions %+v", out.Actions, out.Status.Conditions)
	}
	if got, want := cpuOf(out.Status), "200m allocated, 200m/200m"; got != want {
		t.Errorf("when it is done: %s, want %s", got, want)
	}
	const completed = `Normal ResizeCompleted Pod resize completed: {"containers":[{"name":"app","resources":{` +
		`"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"200m","memory":"64Mi"}}}],"generation":3}`
	if diff := cmp.Diff([]string{completed}, messagesOf(out)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	in.Old, in.Memory = out.Status, out.Memory
	if out := Decide(in); len(out.Events) != 0 || len(out.Actions) != 0 {
		t.Errorf("then: %v, %v", out.Events, out.Actions)
	}
}

// TestResizeSurvivesTheAgent replaces the agent during a resize and after it.
func TestResizeSurvivesTheAgent(t *testing.T) {
	in := grown()
	in.Pod.Status = Decide(in).Status
	next := in
	next.Resize, next.Old, next.Memory = Resize{}, in.Pod.Status, Remember(&in.Pod.Status)
	next.Memory.VolumesReady = true
	out := Decide(next)
	if c := resizeCondition(out.Status, v1.PodResizeInProgress); len(out.Actions) != 1 || c.ObservedGeneration != 3 {
		t.Errorf("half done: actions %v, condition %+v", out.Actions, c)
	}
	next.Memory.Resized(in.Pod, in.Runtime.Containers)
	in.Pod.Status = Decide(next).Status
	next.Old, next.Memory = in.Pod.Status, Remember(&in.Pod.Status)
	next.Memory.VolumesReady = true
	if out := Decide(next); len(out.Actions) != 0 || len(out.Events) != 0 || cpuOf(out.Status) != "200m allocated, 200m/200m" {
		t.Errorf("done: actions %v, events %v, %s", out.Actions, out.Events, cpuOf(out.Status))
	}
}

// TestResizeBeforeVolumes: an agent ended after it had stored an allocation. The next one prepares the volumes before it
// resizes, and does not show the resize as complete meanwhile.
func TestResizeBeforeVolumes(t *testing.T) {
	in := grown()
	in.Resize, in.Memory = Resize{}, Remember(&in.Pod.Status)
	out := Decide(in)
	if got, want := cpuOf(out.Status), "200m allocated, 100m/100m"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if c := resizeCondition(out.Status, v1.PodResizeInProgress); c.Status != v1.ConditionTrue || c.ObservedGeneration != 3 {
		t.Errorf("condition %+v", c)
	}
	if diff := cmp.Diff([]string{"PrepareVolumes/"}, actionsOf(out)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	in.Old, in.Memory = out.Status, out.Memory
	in.Memory.VolumesReady, in.Memory.PreparedFor = true, shownMetadata(in.Pod)
	if diff := cmp.Diff([]string{"ResizePod/"}, actionsOf(Decide(in))); diff != "" {
		t.Errorf("then: actions (-want +got):\n%s", diff)
	}
}

func TestResizeByRestart(t *testing.T) {
	in := grown(v1.ContainerResizePolicy{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer})
	in.Pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	out := Decide(in)
	if diff := cmp.Diff([]string{"StopContainer/app-0 in 30s"}, actionsOf(out)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal Killing Container app resize requires restart"}, messagesOf(out)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	in.Runtime.Containers[0].State = runtime.Exited // with code 0, after which the pod would be over
	in.Memory = out.Memory
	if diff := cmp.Diff([]string{"ResizePod/", "StartContainer/app"}, actionsOf(Decide(in))); diff != "" {
		t.Errorf("actions after its end (-want +got):\n%s", diff)
	}
	// A resize policy for memory does not affect CPU.
	other := grown(v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer})
	if diff := cmp.Diff([]string{"ResizePod/"}, actionsOf(Decide(other))); diff != "" {
		t.Errorf("actions for another resource (-want +got):\n%s", diff)
	}
}

func TestPendingResize(t *testing.T) {
	in := scene(sized("app", "100m", "64Mi")).with(runningRun("app"))
	in.Resize.Pending = &Refusal{Reason: "OutOfcpu", Message: "no room"}
	out := Decide(in)
	c := resizeCondition(out.Status, v1.PodResizePending)
	if c.Status != v1.ConditionTrue || c.Reason != "Deferred" || c.Message != "no room" || c.ObservedGeneration != 3 || len(out.Actions) != 0 {
		t.Errorf("condition %+v, actions %v", c, out.Actions)
	}
	in.Old, in.Resize.Pending = out.Status, nil
	if c := resizeCondition(Decide(in).Status, v1.PodResizePending); c.Type != "" {
		t.Errorf("condition %+v stays", c)
	}
}

// TestFailedResize: the condition has the failure, and the resize is retried.
func TestFailedResize(t *testing.T) {
	in := grown()
	in.Memory = Decide(in).Memory
	in.Memory.Failures[OfResize] = Failure{}.Fail(v1.PodReasonError, "busy", caseTime)
	out := Decide(in)
	if c := resizeCondition(out.Status, v1.PodResizeInProgress); c.Reason != "Error" || c.Message != "busy" || len(out.Actions) != 0 {
		t.Errorf("condition %+v, actions %v", c, out.Actions)
	}
	if !out.Wake.Equal(caseTime.Add(retryFirst)) {
		t.Errorf("wakes at %v", out.Wake)
	}
	in.Resize.Allocated, in.Pod.Generation = 4, 4
	out = Decide(in)
	if c := resizeCondition(out.Status, v1.PodResizeInProgress); c.Reason != "" || c.ObservedGeneration != 4 || len(out.Actions) != 1 {
		t.Errorf("after another resize: condition %+v, actions %v", c, out.Actions)
	}
}

func TestAllocationIsStored(t *testing.T) {
	layout := rootdir.Layout{Root: t.TempDir()}
	if _, ok := LoadAllocation(layout, "u"); ok {
		t.Error("loaded an allocation that was never saved")
	}
	p := scene(sized("app", "100m", "64Mi")).Pod
	if err := AllocationOf(p).Save(layout, "u"); err != nil {
		t.Fatal(err)
	}
	got, ok := LoadAllocation(layout, "u")
	if !ok || !got.Equal(AllocationOf(p)) || got.ApplyTo(p) != p {
		t.Errorf("%+v, %t", got, ok)
	}
	wanted := p.DeepCopy()
	wanted.Spec.Containers[0].Resources = requirements("4", "4Gi")
	if in := got.ApplyTo(wanted); in.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" || wanted.Spec.Containers[0].Resources.Requests.Cpu().String() != "4" {
		t.Errorf("allocated %+v, wanted %+v", in.Spec.Containers[0].Resources, wanted.Spec.Containers[0].Resources)
	}
}

// A resize that can never be done is shown as Infeasible, any other that waits as Deferred.
func TestPendingReasons(t *testing.T) {
	for reason, want := range map[string]string{"OutOfcpu": v1.PodReasonDeferred, v1.PodReasonInfeasible: v1.PodReasonInfeasible} {
		in := scene(v1.Container{Name: "c"}).with(runningRun("c"))
		in.Resize.Pending = &Refusal{Reason: reason, Message: "why"}
		c := conditionOf(Decide(in).Status.Conditions, v1.PodResizePending)
		if c == nil || c.Reason != want || c.Message != "why" {
			t.Errorf("%s: %+v", reason, c)
		}
	}
}

// The status has the resources of the whole pod: while it is resized, those that its cgroup still has.
func TestPodResourcesStatus(t *testing.T) {
	c := sized("c", "1", "64Mi")
	in := scene(c, v1.Container{Name: "unlimited"}).with(runningRun("c"))
	in.Pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("128Mi")}}
	was := criconfig.PodSize(in.Pod)
	was.MemoryLimit = 96 << 20
	for name, test := range map[string]struct {
		memory Memory
		shown  *v1.ResourceRequirements
		want   string
	}{
		"unknown cgroup":   {Memory{VolumesReady: true}, nil, "128Mi"},
		"cgroup as before": {Memory{VolumesReady: true, Cgroup: &was}, nil, "96Mi"},
		"new agent": {Memory{VolumesReady: true, Resizing: true}, &v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("80Mi")},
		}, "80Mi"},
	} {
		in.Memory, in.Old.Resources = test.memory, test.shown
		s := Decide(in).Status
		if got := s.Resources.Limits.Memory().String(); got != test.want {
			t.Errorf("%s: limit %s, want %s", name, got, test.want)
		}
		if _, limited := s.Resources.Limits[v1.ResourceCPU]; limited {
			t.Errorf("%s: the CPU of a container without a limit is shown as limited", name)
		}
		if got := s.AllocatedResources.Cpu().String(); got != "1" {
			t.Errorf("%s: allocated CPU %s", name, got)
		}
	}
}

// TestResizeOfPodLimit: a container without a limit has the pod's, and restarts for a change of it if its policy says so.
func TestResizeOfPodLimit(t *testing.T) {
	for name, test := range map[string]struct {
		own     v1.ResourceRequirements
		policy  v1.ResourceResizeRestartPolicy
		actions []string
	}{
		"no own limit":                 {v1.ResourceRequirements{}, v1.NotRequired, []string{"ResizePod/"}},
		"no own limit, has to restart": {v1.ResourceRequirements{}, v1.RestartContainer, []string{"StopContainer/app-0 in 30s"}},
		"own limit":                    {requirements("100m", "64Mi"), v1.RestartContainer, []string{"ResizePod/"}},
	} {
		in := scene(v1.Container{
			Name: "app", Image: "i", Resources: test.own,
			ResizePolicy: []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: test.policy}},
		})
		before, after := requirements("200m", "128Mi"), requirements("200m", "256Mi")
		in.Pod.Spec.Resources = &before
		created, c := in.Pod.DeepCopy(), &in.Pod.Spec.Containers[0]
		in = in.with(runtime.Container{
			Name: "app", State: runtime.Running, StartedAt: caseTime.Add(-time.Minute),
			Hash: criconfig.Hash(created, c), Size: criconfig.ContainerSize(created, c).String(),
		})
		size := criconfig.PodSize(created)
		in.Memory.Cgroup = &size
		in.Pod.Spec.Resources, in.Resize = &after, Resize{Allocated: 3}
		if diff := cmp.Diff(test.actions, actionsOf(Decide(in))); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", name, diff)
		}
	}
}
