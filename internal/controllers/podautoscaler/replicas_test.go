// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// runningPod returns a pod that has been ready for an hour and requests one CPU.
func runningPod(i int, change ...func(*corev1.Pod)) *corev1.Pod {
	began := metav1.NewTime(start.Add(-time.Hour))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("p%d", i), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &began, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: began},
		}},
	}
	for _, do := range change {
		do(pod)
	}
	return pod
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(start)) }

// readiness sets when a pod was started and when its readiness became what it is.
func readiness(is corev1.ConditionStatus, started, since time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.StartTime = new(metav1.NewTime(start.Add(-started)))
		pod.Status.Conditions[0].Status = is
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(-since))
	}
}

func noCondition(pod *corev1.Pod) { pod.Status.Conditions = nil }

// TestUtilization has the cases of the documented algorithm
// (https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/): the CPU
// of pods that request one CPU each, and the utilization to reach.
func TestUtilization(t *testing.T) {
	ok := runningPod
	for _, test := range []struct {
		name    string
		pods    []*corev1.Pod
		cpu     []int64 // by pod; -1 for no sample
		percent int32
		current int32
		want    int32
		used    int32 // utilization
		err     string
	}{
		{"twice the target doubles", []*corev1.Pod{ok(0), ok(1)}, []int64{1000, 1000}, 50, 2, 4, 100, ""},
		{"half of the target halves", []*corev1.Pod{ok(0), ok(1)}, []int64{250, 250}, 50, 2, 1, 25, ""},
		{"rounded up", []*corev1.Pod{ok(0), ok(1), ok(2)}, []int64{300, 500, 700}, 30, 3, 5, 50, ""},
		{"within the tolerance", []*corev1.Pod{ok(0), ok(1)}, []int64{540, 540}, 50, 2, 2, 54, ""},
		{"at the tolerance", []*corev1.Pod{ok(0)}, []int64{550}, 50, 1, 1, 55, ""},
		{"above the tolerance", []*corev1.Pod{ok(0)}, []int64{560}, 50, 1, 2, 56, ""},
		{"failed and deleted pods do not count", []*corev1.Pod{ok(0), ok(1, deleted), ok(2, phase(corev1.PodFailed))}, []int64{500, 10000, 10000}, 50, 3, 3, 50, ""},
		{"pending pods count as idle when adding", []*corev1.Pod{ok(0), ok(1), ok(2, phase(corev1.PodPending))}, []int64{1000, 1000, -1}, 50, 3, 4, 100, ""},
		{"pending pods do not oppose removing", []*corev1.Pod{ok(0), ok(1), ok(2, phase(corev1.PodPending))}, []int64{250, 250, -1}, 50, 3, 1, 25, ""},
		{"pending pods dampen adding", []*corev1.Pod{ok(0), ok(1), ok(2, phase(corev1.PodPending))}, []int64{800, 800, -1}, 50, 3, 3, 80, ""},
		{"starting pods count as idle when adding", []*corev1.Pod{ok(0), ok(1), ok(2, readiness(corev1.ConditionFalse, time.Minute, time.Minute))}, []int64{1000, 1000, 10000}, 50, 3, 4, 100, ""},
		{"pending pods must not turn adding into removing", []*corev1.Pod{ok(0), ok(1, phase(corev1.PodPending)), ok(2, phase(corev1.PodPending))}, []int64{700, -1, -1}, 50, 3, 3, 70, ""},
		{"missing samples count as idle when adding", []*corev1.Pod{ok(0), ok(1), ok(2)}, []int64{1000, 1000, -1}, 50, 3, 4, 100, ""},
		{"missing samples count as busy when removing", []*corev1.Pod{ok(0), ok(1), ok(2), ok(3)}, []int64{100, 100, 100, -1}, 50, 4, 3, 10, ""},
		{"missing samples count as the target when removing", []*corev1.Pod{ok(0), ok(1)}, []int64{1000, -1}, 200, 2, 2, 100, ""},
		{"missing samples must not turn removing into adding", []*corev1.Pod{ok(0), ok(1), ok(2)}, []int64{100, -1, -1}, 50, 3, 3, 10, ""},
		{"no samples", []*corev1.Pod{ok(0, noCondition)}, []int64{500}, 50, 1, 0, 0, "did not receive metrics for targeted pods (pods might be unready)"},
		{"no pods", nil, nil, 50, 1, 0, 0, "no pods returned by selector while calculating replica count"},
	} {
		t.Run(test.name, func(t *testing.T) {
			from := samples{}
			for i, value := range test.cpu {
				if value >= 0 {
					from[fmt.Sprintf("p%d", i)] = sample{at: start, window: time.Minute, value: value}
				}
			}
			want := func() (target, error) {
				requests, err := requestsOf(test.pods, "", corev1.ResourceCPU)
				return utilizationTarget{test.percent, requests}, err
			}
			replicas, measured, err := forPods(test.current, test.pods, from, true, want, tolerances{0.1, 0.1}, start)
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Fatalf("error %v, want %s", err, test.err)
			}
			if err == nil && (replicas != test.want || *measured.utilization != test.used) {
				t.Errorf("%d replicas at %d%%, want %d at %d%%", replicas, *measured.utilization, test.want, test.used)
			}
		})
	}
}

func TestIsStarting(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		taken  time.Duration // before now
		want   bool
	}{
		{"no condition", noCondition, 0, true},
		{"not ready, just started", readiness(corev1.ConditionFalse, time.Minute, time.Minute), 0, true},
		{"ready, sampled in the window before", readiness(corev1.ConditionTrue, 2*time.Minute, 30*time.Second), 0, true},
		{"ready, sampled one window after", readiness(corev1.ConditionTrue, 2*time.Minute, 61*time.Second), 0, false},
		{"ready for long, sampled before the start", readiness(corev1.ConditionTrue, 2*time.Minute, 90*time.Second), time.Minute, true},
		{"never ready since long", readiness(corev1.ConditionFalse, time.Hour, time.Hour-20*time.Second), 0, true},
		{"no longer ready", readiness(corev1.ConditionFalse, time.Hour, 10*time.Second), 0, false},
	} {
		s := sample{at: start.Add(-test.taken), window: time.Minute}
		if got := isStarting(runningPod(0, test.change), s, start); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestAverage: a custom metric of pods has no requests, and its samples count whether a pod is ready or
// not.
func TestAverage(t *testing.T) {
	all := []*corev1.Pod{runningPod(0), runningPod(1, readiness(corev1.ConditionFalse, time.Minute, time.Minute))}
	from := samples{"p0": {value: 30}, "p1": {value: 10}, "unknown": {value: 20}}
	replicas, measured, err := forPods(2, all, from, false, func() (target, error) { return averageTarget(10), nil }, tolerances{0.1, 0.1}, start)
	if err != nil || replicas != 4 || measured.average != 20 || measured.utilization != nil {
		t.Errorf("%d replicas, %+v, %v", replicas, measured, err)
	}
	if len(from) != 3 {
		t.Error("the samples were changed")
	}
}

func TestForValue(t *testing.T) {
	all := []*corev1.Pod{runningPod(0), runningPod(1), runningPod(2, phase(corev1.PodPending))}
	for _, test := range []struct {
		name        string
		current     int32
		usage, want int64
		pods        []*corev1.Pod
		replicas    int32
		err         bool
	}{
		{"by ready pods", 3, 40, 20, all, 4, false},
		{"within the tolerance", 3, 21, 20, all, 3, false},
		{"to zero", 3, 0, 20, all, 0, false},
		{"from zero", 0, 41, 20, nil, 3, false},
		{"stays at zero", 0, 0, 20, nil, 0, false},
		{"no pods", 1, 40, 20, nil, 0, true},
		{"huge", 1, math.MaxInt64, 1, all, math.MaxInt32, false},
	} {
		got, err := forValue(test.current, test.usage, test.want, test.pods, tolerances{0.1, 0.1})
		if got != test.replicas || (err != nil) != test.err {
			t.Errorf("%s: %d, %v, want %d", test.name, got, err, test.replicas)
		}
	}
}

func TestForShare(t *testing.T) {
	for _, test := range []struct {
		name        string
		status      int32
		usage, want int64
		replicas    int32
		share       int64
	}{
		{"more", 2, 100, 20, 5, 50},
		{"fewer", 5, 40, 20, 2, 8},
		{"within the tolerance", 5, 105, 20, 5, 21},
		{"from zero", 0, 41, 20, 3, 41},
		{"nothing by nothing", 0, 0, 20, 0, 0},
		{"huge", 1, math.MaxInt64, 1, math.MaxInt32, math.MaxInt64},
	} {
		if replicas, share := forShare(test.status, test.usage, test.want, tolerances{0.1, 0.1}); replicas != test.replicas || share != test.share {
			t.Errorf("%s: %d replicas with %d, want %d with %d", test.name, replicas, share, test.replicas, test.share)
		}
	}
}

func TestTolerances(t *testing.T) {
	for _, test := range []struct {
		ratio float64
		want  bool
	}{{0.79, false}, {0.81, true}, {1, true}, {1.04, true}, {1.06, false}, {math.NaN(), false}, {math.Inf(1), false}} {
		if got := (tolerances{down: 0.2, up: 0.05}).accept(test.ratio); got != test.want {
			t.Errorf("%v: %v", test.ratio, got)
		}
	}
}

func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	with := func(change func(*corev1.PodSpec)) *corev1.Pod {
		return runningPod(0, func(p *corev1.Pod) { change(&p.Spec) })
	}
	cpu := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(s)}
	}
	sidecar := func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: cpu("100m")}}}
	}
	for _, test := range []struct {
		name      string
		pod       *corev1.Pod
		container string
		resource  corev1.ResourceName
		want      int64
		err       string
	}{
		{"sum with sidecars", with(sidecar), "", "cpu", 1100, ""},
		{"one container", with(sidecar), "side", "cpu", 100, ""},
		{"no such container", with(sidecar), "init", "cpu", 0, "container init not found in Pod p0"},
		{"no request", with(sidecar), "app", "memory", 0, "missing request for memory in container app of Pod p0"},
		{"of the pod", with(func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Requests: cpu("3")} }), "", "cpu", 3000, ""},
		{"of the pod, missing", with(func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Requests: cpu("3")} }), "", "memory", 0, "missing pod-level request for memory in Pod p0"},
		{"a container of such a pod", with(func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Requests: cpu("3")} }), "app", "cpu", 1000, ""},
	} {
		got, err := requestsOf([]*corev1.Pod{test.pod}, test.container, test.resource)
		if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err || got["p0"] != test.want {
			t.Errorf("%s: %v, %v", test.name, got, err)
		}
	}
}
