// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func TestRequirement(t *testing.T) {
	for _, tt := range []struct {
		minimum, maximum  string
		selected, scale   int
		expected, healthy int
	}{
		{"", "", 5, 5, 0, 0},
		{"3", "", 5, 9, 5, 3},
		{"0", "", 5, 9, 5, 0},
		{"50%", "", 3, 5, 5, 3}, // rounded up
		{"100%", "", 3, 5, 5, 5},
		{"0%", "", 3, 5, 5, 0},
		{"", "1", 3, 5, 5, 4},
		{"", "0", 3, 5, 5, 5},
		{"", "9", 3, 5, 5, 0},
		{"", "30%", 3, 5, 5, 3}, // 1.5 unavailable, rounded up
		{"", "100%", 3, 5, 5, 0},
	} {
		spec := policyv1.PodDisruptionBudgetSpec{}
		if tt.minimum != "" {
			spec.MinAvailable = ptr.To(intstr.Parse(tt.minimum))
		}
		if tt.maximum != "" {
			spec.MaxUnavailable = ptr.To(intstr.Parse(tt.maximum))
		}
		expected, healthy, err := requirement(&spec, tt.selected, tt.scale)
		if err != nil || expected != tt.expected || healthy != tt.healthy {
			t.Errorf("minAvailable %q, maxUnavailable %q: expects %d pods, %d healthy; want %d, %d (%v)", tt.minimum, tt.maximum, expected, healthy, tt.expected, tt.healthy, err)
		}
	}
	if _, _, err := requirement(&policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromString("some"))}, 1, 1); err == nil {
		t.Error("no error for an invalid percentage")
	}
}

func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "web"}}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func unready(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func deleted(pod *corev1.Pod) {
	pod.DeletionTimestamp = &metav1.Time{Time: controltest.Start}
	pod.Finalizers = []string{"test/keep"}
}

func TestEvicted(t *testing.T) {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(controltest.Start.Add(-d)) }
	pending, kept, next := evicted(map[string]metav1.Time{
		"just": ago(time.Second), "before": ago(90 * time.Second), "kept": ago(2 * time.Minute), "deleted": ago(time.Second), "gone": ago(time.Second),
	}, []*corev1.Pod{newPod("just"), newPod("before"), newPod("kept"), newPod("deleted", deleted), newPod("other")}, controltest.Start)
	if diff := cmp.Diff(map[string]metav1.Time{"just": ago(time.Second), "before": ago(90 * time.Second)}, pending); diff != "" {
		t.Error(diff)
	}
	if len(kept) != 1 || kept[0].Name != "kept" || next != 30*time.Second {
		t.Errorf("%d kept, next %v", len(kept), next)
	}
}

func TestStatusOf(t *testing.T) {
	selected := []*corev1.Pod{newPod("a"), newPod("b"), newPod("c"), newPod("unready", unready), newPod("deleted", deleted), newPod("evicted")}
	pending := map[string]metav1.Time{"evicted": metav1.NewTime(controltest.Start)}
	for _, tt := range []struct {
		expected, desired int
		selected          []*corev1.Pod
		want              string
	}{
		{6, 2, selected, "3 of 2 healthy, 6 expected, 1 allowed: SufficientPods"},
		{6, 3, selected, "3 of 3 healthy, 6 expected, 0 allowed: InsufficientPods"},
		{6, 5, selected, "3 of 5 healthy, 6 expected, 0 allowed: InsufficientPods"},
		{0, 0, selected, "3 of 0 healthy, 0 expected, 0 allowed: InsufficientPods"},
		{0, 0, nil, "0 of 0 healthy, 0 expected, 0 allowed: InsufficientPods"},
	} {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		s := statusOf(budget, tt.selected, pending, tt.expected, tt.desired)
		if got := text(s); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
		if s.ObservedGeneration != 7 || s.Conditions[0].ObservedGeneration != 7 || (s.DisruptionsAllowed > 0) != (s.Conditions[0].Status == metav1.ConditionTrue) {
			t.Errorf("generation %d, condition %+v", s.ObservedGeneration, s.Conditions[0])
		}
	}
}

func text(s policyv1.PodDisruptionBudgetStatus) string {
	i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == policyv1.DisruptionAllowedCondition })
	if i < 0 {
		return "no condition"
	}
	return fmt.Sprintf("%d of %d healthy, %d expected, %d allowed: %s", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods, s.DisruptionsAllowed, s.Conditions[i].Reason)
}

func TestFailedStatus(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 5, DesiredHealthy: 3, ExpectedPods: 5, DisruptionsAllowed: 2}
	s := failedStatus(budget, errors.New("no scale"))
	if got, want := text(s), "5 of 3 healthy, 5 expected, 0 allowed: SyncFailed"; got != want || s.Conditions[0].Message != "no scale" || s.ObservedGeneration != 1 {
		t.Errorf("%s; %+v", got, s)
	}
}
