// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

func cpu(request string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}}
}

func somePod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 1}, Spec: corev1.PodSpec{
		NodeName: "n1", TerminationGracePeriodSeconds: new(int64(30)), Containers: []corev1.Container{{Name: "c", Image: "i", Resources: cpu("1")}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestPodIsCreatedPending(t *testing.T) {
	p := somePod(func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.NewTime(time.Unix(5, 0))
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	})
	preparePod(t.Context(), p, nil)
	if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBurstable || p.Spec.SchedulingGroup != nil {
		t.Errorf("%+v", p)
	}
	if request := p.Spec.Resources.Requests[corev1.ResourceCPU]; request.String() != "1" {
		t.Errorf("the pod requests %s, want the sum of its containers", request.String())
	}
	if c := p.Status.Conditions; len(c) != 1 || c[0].Reason != corev1.PodReasonSchedulingGated || !c[0].LastTransitionTime.Equal(&p.CreationTimestamp) {
		t.Errorf("conditions %+v", c)
	}
}

func TestPodUpdateKeepsPodLevelResources(t *testing.T) {
	resources := cpu("2")
	old := somePod(func(p *corev1.Pod) { p.Spec.Resources = &resources })
	p := somePod()
	preparePod(t.Context(), p, old)
	if p.Spec.Resources == nil || p.Spec.Resources == old.Spec.Resources {
		t.Error("an older client removed the pod's resources, or they are not a copy")
	}
}

func TestPodStatusKeepsFieldsOfOthers(t *testing.T) {
	now := metav1.NewTime(time.Unix(9, 0))
	old := somePod(func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
		p.Status = corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 7, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "r"}},
			Conditions: []corev1.PodCondition{{Type: "A", ObservedGeneration: 3}, {Type: "B", ObservedGeneration: 4}}}
	})
	p := somePod(func(p *corev1.Pod) {
		p.DeletionTimestamp = &now
		p.Status.Conditions = []corev1.PodCondition{{Type: "B"}, {Type: "A", ObservedGeneration: 9}, {Type: "C"}}
		p.Status.PodIPs = []corev1.PodIP{{IP: "fd00:0::1"}}
	})
	preparePodStatus(t.Context(), p, old)
	if p.DeletionTimestamp != nil || len(p.OwnerReferences) != 1 || p.Status.QOSClass != corev1.PodQOSGuaranteed || p.Status.ObservedGeneration != 7 || len(p.Status.ResourceClaimStatuses) != 1 {
		t.Errorf("%+v", p)
	}
	var observed []int64
	for _, c := range p.Status.Conditions {
		observed = append(observed, c.ObservedGeneration)
	}
	if !slices.Equal(observed, []int64{4, 9, 0}) {
		t.Errorf("observed generations %v", observed)
	}
	if warnings := podStatusWarnings(t.Context(), p, old); len(warnings) != 1 {
		t.Errorf("warnings %q", warnings)
	}
}

func TestPodGrace(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		asked  *int64
		want   int64
	}{
		"the pod's period": {func(*corev1.Pod) {}, nil, 30},
		"requested period": {func(*corev1.Pod) {}, new(int64(5)), 5},
		"immediately":      {func(*corev1.Pod) {}, new(int64(0)), 0},
		"negative":         {func(*corev1.Pod) {}, new(int64(-1)), 1},
		"unscheduled":      {func(p *corev1.Pod) { p.Spec.NodeName = "" }, new(int64(5)), 0},
		"succeeded":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, nil, 0},
		"failed":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, new(int64(9)), 0},
	} {
		options := &metav1.DeleteOptions{GracePeriodSeconds: test.asked}
		if !podGrace(t.Context(), somePod(test.change), options) || *options.GracePeriodSeconds != test.want {
			t.Errorf("%s: %d s, want %d", name, *options.GracePeriodSeconds, test.want)
		}
	}
}

func TestResize(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*corev1.Pod)
		cpu, image string
		generation int64
		containers int
	}{
		"resources":       {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("2") }, "2", "i", 2, 1},
		"other fields":    {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other"; p.Labels = map[string]string{"a": "b"} }, "1", "i", 1, 1},
		"added container": {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d"}) }, "1", "i", 2, 2},
		"renamed":         {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "x" }, "1", "i", 2, 1},
	} {
		p, old := somePod(test.change), somePod()
		prepareResize(t.Context(), p, old)
		request := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
		if request.String() != test.cpu || p.Spec.Containers[0].Image != test.image || p.Generation != test.generation || len(p.Spec.Containers) != test.containers {
			t.Errorf("%s: %+v, generation %d", name, p.Spec.Containers, p.Generation)
		}
		if now := old.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; now.String() != "1" {
			t.Errorf("%s: the old pod was changed", name)
		}
	}
}

func TestEphemeralContainersUpdate(t *testing.T) {
	p, old := somePod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Status.Phase = "other", corev1.PodFailed
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	}), somePod()
	ephemeralContainers.Prepare(t.Context(), p, old)
	if p.Spec.Containers[0].Image != "i" || p.Status.Phase != "" || len(p.Spec.EphemeralContainers) != 1 || p.Generation != 2 {
		t.Errorf("%+v", p)
	}
}

// TestPodCells checks the columns READY, STATUS and RESTARTS.
func TestPodCells(t *testing.T) {
	now := time.Unix(10_000, 0)
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	type pod = *corev1.Pod
	deleted := metav1.NewTime(now)
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	for name, test := range map[string]struct {
		change                  func(pod)
		ready, status, restarts string
	}{
		"pending": {func(p pod) { p.Status.Phase = corev1.PodPending }, "0/1", "Pending", "0"},
		"gated": {func(p pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}}
		}, "0/1", "SchedulingGated", "0"},
		"evicted": {func(p pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }, "0/1", "Evicted", "0"},
		"creating": {func(p pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: waiting("ContainerCreating")}}
		}, "0/1", "ContainerCreating", "0"},
		"running": {func(p pod) {
			p.Status.Phase = "Running"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: running, Ready: true}}
		}, "1/1", "Running", "0"},
		"failed":               {func(p pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: ended(3, "")}} }, "0/1", "ExitCode:3", "0"},
		"failed with a reason": {func(p pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: ended(1, "Error")}} }, "0/1", "Error", "0"},
		"restarted": {func(p pod) {
			last := ended(1, "Error")
			last.Terminated.FinishedAt = metav1.NewTime(now.Add(-90 * time.Second))
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: waiting("CrashLoopBackOff"), RestartCount: 4, LastTerminationState: last}}
		}, "0/1", "CrashLoopBackOff", "4 (90s ago)"},
		"init": {func(p pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "b"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: ended(0, "Completed")}, {State: waiting("PodInitializing")}}
		}, "0/1", "Init:1/2", "0"},
		"init failed": {func(p pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: ended(1, "Error")}}
		}, "0/1", "Init:Error", "0"},
		"sidecar": {func(p pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "s", State: running, Started: new(true), Ready: true, RestartCount: 2}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: running, Ready: true}}
			p.Status.Phase = corev1.PodRunning
		}, "2/2", "Running", "2"},
		"one completed": {func(p pod) {
			p.Status.Conditions = []corev1.PodCondition{ready}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: ended(0, "Completed")}, {State: running, Ready: true}}
		}, "1/1", "Running", "0"},
		"terminating": {func(p pod) { p.DeletionTimestamp, p.Status.Phase = &deleted, corev1.PodRunning }, "0/1", "Terminating", "0"},
		"lost":        {func(p pod) { p.DeletionTimestamp, p.Status.Reason = &deleted, "NodeLost" }, "0/1", "Unknown", "0"},
	} {
		p := somePod(test.change)
		s := summarize(p)
		restarts := s.restartsAgo()
		if timed, ok := restarts.(generic.Timed); ok {
			restarts = timed(clocktesting.NewFakePassiveClock(now))
		}
		if s.readiness() != test.ready || s.status != test.status || restarts != test.restarts {
			t.Errorf("%s: %s %s %v, want %s %s %s", name, s.readiness(), s.status, restarts, test.ready, test.status, test.restarts)
		}
	}
}

func TestContainerOfRequest(t *testing.T) {
	two := somePod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d"})
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	})
	for _, test := range []struct {
		pod         *corev1.Pod
		asked, want string
		refused     string
	}{
		{somePod(), "", "c", ""},
		{two, "e", "e", ""},
		{two, "i", "i", ""},
		{two, "", "", "a container name must be specified for pod web, choose one of: [i c d e]"},
		{two, "x", "", "container x is not valid for pod web"},
		{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, "", "", "a container name must be specified for pod none"},
	} {
		got, err := container(test.pod, test.asked)
		if got != test.want || (err != nil) != (test.refused != "") || err != nil && (err.Error() != test.refused || !apierrors.IsBadRequest(err)) {
			t.Errorf("%q of %s: %q, %v; want %q, %q", test.asked, test.pod.Name, got, err, test.want, test.refused)
		}
	}
}

func TestBind(t *testing.T) {
	now := time.Unix(100, 0)
	before := metav1.NewTime(time.Unix(50, 0))
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"zone": "z"}}, Target: corev1.ObjectReference{Name: "n2"}}
	free := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		since  time.Time
	}{
		"new": {func(*corev1.Pod) {}, now},
		"not scheduled before": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable", LastTransitionTime: before}}
		}, now},
		"scheduled before": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "True", LastTransitionTime: before}}
		}, before.Time},
	} {
		p := somePod(free, test.change)
		p.Status.NominatedNodeName = "n9"
		if _, err := bind(p, binding, now); err != nil {
			t.Fatal(err)
		}
		c := p.Status.Conditions
		if p.Spec.NodeName != "n2" || p.Annotations["a"] != "b" || p.Labels["zone"] != "z" || p.Status.NominatedNodeName != "" ||
			len(c) != 1 || c[0].Status != "True" || c[0].Reason != "" || !c[0].LastTransitionTime.Time.Equal(test.since) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	deleted := metav1.NewTime(now)
	for name, change := range map[string]func(*corev1.Pod){
		"assigned": func(p *corev1.Pod) { p.Spec.NodeName = "n1" },
		"deleted":  func(p *corev1.Pod) { p.DeletionTimestamp = &deleted },
		"gated":    func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
	} {
		if _, err := bind(somePod(free, change), binding, now); err == nil {
			t.Errorf("%s: bound", name)
		}
	}
}
