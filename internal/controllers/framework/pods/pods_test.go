// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"math/rand"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func running(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	readyFor(time.Hour)(pod)
	for _, f := range change {
		f(pod)
	}
	return pod
}

func readyFor(d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-d))}}
	}
}

func notReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func restarts(app, sidecar int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: app}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", RestartCount: 99}, {Name: "sidecar", RestartCount: sidecar}}
	}
}

func TestVictimsFollowTheDocumentedOrder(t *testing.T) {
	cost := func(v string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: v} }
	}
	on := func(node string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = node } }
	phase := func(p corev1.PodPhase) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Status.Phase = p } }
	aged := func(d time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(now.Add(-d)) }
	}
	// In each pair the first pod must be deleted first, although the second ranks worse by
	// all later rules.
	for name, pair := range map[string][2]*corev1.Pod{
		"unassigned":               {running("b", on("")), running("a", phase(corev1.PodPending), notReady)},
		"pending":                  {running("b", phase(corev1.PodPending)), running("a", phase(corev1.PodUnknown), notReady)},
		"unknown":                  {running("b", phase(corev1.PodUnknown)), running("a", notReady)},
		"not ready":                {running("b", notReady), running("a", cost("-10"))},
		"cost":                     {running("b", cost("-1")), running("a", on("crowd"))},
		"cost, canonical":          {running("b", cost("0")), running("a", cost("1"))},
		"invalid cost counts as 0": {running("b", cost("+1")), running("a", cost("1"))},
		"doubled up":               {running("b", on("crowd")), running("a", readyFor(time.Second))},
		"ready for a shorter time": {running("b", readyFor(time.Minute)), running("a", restarts(5, 0))},
		"restarts":                 {running("b", restarts(1, 0)), running("a", restarts(0, 9), aged(time.Second))},
		"sidecar restarts":         {running("b", restarts(0, 1)), running("a", aged(time.Second))},
		"younger":                  {running("b", aged(time.Minute)), running("a")},
		"uid":                      {running("a"), running("b")},
	} {
		t.Run(name, func(t *testing.T) {
			related := []*corev1.Pod{running("x", on("crowd")), running("y", on("crowd"))}
			for _, candidates := range [][]*corev1.Pod{{pair[0], pair[1]}, {pair[1], pair[0]}} {
				if got := Victims(candidates, related, 1, now); got[0] != pair[0] {
					t.Errorf("%s goes first", got[0].Name)
				}
			}
		})
	}
}

func TestVictimsComparesAgesByMagnitude(t *testing.T) {
	older := running("a", readyFor(61*time.Minute))
	younger := running("b", readyFor(60*time.Minute))
	if got := Victims([]*corev1.Pod{younger, older}, nil, 1, now); got[0] != older {
		t.Error("a minute in an hour decides, not the UID")
	}
}

// The comparison must be a strict weak order. Otherwise the result of sorting would depend on the
// order in which the cache lists pods.
func TestVictimsDoNotDependOnTheirOrder(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	var pods []*corev1.Pod
	for i := range 40 {
		pods = append(pods, running(string(rune('A'+i)), readyFor(time.Duration(rng.Intn(4)*20)*time.Second), restarts(int32(rng.Intn(3)), int32(rng.Intn(2))),
			func(pod *corev1.Pod) {
				pod.Spec.NodeName = []string{"", "n1", "n2"}[rng.Intn(3)]
				if rng.Intn(3) == 0 {
					notReady(pod)
				}
			}))
	}
	want := Victims(pods, pods, 39, now)
	for range 50 {
		shuffled := slices.Clone(pods)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := Victims(shuffled, pods, 39, now); !slices.Equal(got, want) {
			t.Fatal("another order of the same pods gives other victims")
		}
	}
	if got := Victims(pods, nil, 100, now); len(got) != len(pods) {
		t.Errorf("%d victims of %d pods", len(got), len(pods))
	}
}

func TestAvailability(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		after int32
		want  bool
	}{
		{"not ready", running("p", notReady), 0, false},
		{"ready, no wait", running("p", readyFor(0)), 0, true},
		{"ready for less than minReadySeconds", running("p", readyFor(9*time.Second)), 10, false},
		{"ready for minReadySeconds", running("p", readyFor(10*time.Second)), 10, true},
		{"ready since an unknown time", running("p", func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Time{} }), 10, false},
	} {
		if got := IsAvailable(tc.pod, tc.after, now); got != tc.want {
			t.Errorf("%s: available is %v", tc.name, got)
		}
	}
	unknown := func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Time{} }
	for want, pods := range map[time.Duration][]*corev1.Pod{
		6 * time.Second:  {running("a", readyFor(time.Minute)), running("b", readyFor(3*time.Second)), running("c", readyFor(4*time.Second)), running("d", notReady)},
		0:                {running("a")},
		10 * time.Second: {running("a", unknown)},
	} {
		if got := NextAvailable(pods, 10, now); got != want {
			t.Errorf("next available in %v, want %v", got, want)
		}
	}
}

func TestSlowStartStopsAtTheFirstBadBatch(t *testing.T) {
	for _, tc := range []struct{ n, goodCalls, wantCalls, wantOK int }{
		{0, 0, 0, 0}, {1, 1, 1, 1}, {300, 300, 300, 300},
		{300, 0, 1, 0},    // 1 fails
		{300, 2, 3, 2},    // 1, then 2 of which one fails
		{300, 10, 15, 10}, // 1+2+4, then 8
		{5, 4, 5, 4},      // the last batch is incomplete
	} {
		var calls atomic.Int64
		var made [300]atomic.Bool
		ok, err := SlowStart(tc.n, func(i int) error {
			if made[i].Swap(true) {
				t.Errorf("call %d of %d made twice", i, tc.n)
			}
			if int(calls.Add(1)) > tc.goodCalls {
				return errors.New("quota")
			}
			return nil
		})
		if int(calls.Load()) != tc.wantCalls || ok != tc.wantOK || (err != nil) != (tc.wantOK < tc.n) {
			t.Errorf("%d calls wanted, of which %d are good: %d calls, %d succeeded, error %v", tc.n, tc.goodCalls, calls.Load(), ok, err)
		}
	}
}

func TestParallelIsBoundedAndComplete(t *testing.T) {
	var inFlight, most atomic.Int64
	var done [500]atomic.Bool
	ok, err := Parallel(len(done), func(i int) error {
		for m, n := most.Load(), inFlight.Add(1); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer inFlight.Add(-1)
		if done[i].Swap(true) {
			t.Errorf("call %d made twice", i)
		}
		if i == 7 {
			return errors.New("seven")
		}
		return nil
	})
	if ok != len(done)-1 || err == nil || err.Error() != "seven" {
		t.Errorf("%d succeeded, error %v", ok, err)
	}
	if most.Load() > parallelism {
		t.Errorf("%d calls in flight", most.Load())
	}
}

func TestFromTemplate(t *testing.T) {
	owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: "ignored", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f/f"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
	got := FromTemplate(template, owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", GenerateName: "web-", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f/f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: template.Spec,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got.Labels["app"], got.Spec.Containers[0].Name = "changed", "changed"
	if template.Labels["app"] != "web" || template.Spec.Containers[0].Name != "c" {
		t.Error("the pod shares memory with the template")
	}
}
