// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func endedAfter(seconds int) *corev1.Pod {
	at := metav1.NewTime(controltest.Start.Add(time.Duration(seconds) * time.Second))
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}}}}}
}

func TestBackoffDoublesWithEachFailureInARow(t *testing.T) {
	var b backoff
	for i, want := range []time.Duration{0, 10, 20, 40, 80, 160, 320, 600, 600} {
		if i > 0 {
			b = b.after(nil, []*corev1.Pod{endedAfter(0)})
		}
		if got := b.remaining(controltest.Start); got != want*time.Second {
			t.Errorf("after %d failures: remaining %v, want %v", i, got, want*time.Second)
		}
		if got := b.remaining(controltest.Start.Add(time.Hour)); got != 0 {
			t.Errorf("an hour after %d failures: remaining %v", i, got)
		}
	}
	b = b.after([]*corev1.Pod{endedAfter(20)}, []*corev1.Pod{endedAfter(10), endedAfter(30)})
	if b.failures != 1 || b.remaining(controltest.Start.Add(35*time.Second)) != 5*time.Second {
		t.Errorf("a success resets only the failures before it: %+v", b)
	}
	if b = b.after([]*corev1.Pod{endedAfter(40)}, nil); b.remaining(controltest.Start) != 0 {
		t.Errorf("backoff after a success: %+v", b)
	}
}

func TestEndedAt(t *testing.T) {
	at := func(seconds int) metav1.Time {
		return metav1.NewTime(controltest.Start.Add(time.Duration(seconds) * time.Second))
	}
	status := func(name string, seconds int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(seconds)}}}
	}
	notReady := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(7)}
	sidecar := corev1.Container{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want int
	}{
		"all containers have ended": {&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status("a", 3), status("b", 2)}}}, 3},
		"the sidecar has ended last": {&corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{sidecar}}, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{status("a", 3)}, InitContainerStatuses: []corev1.ContainerStatus{status("side", 5)}}}, 5},
		"init containers do not count": {&corev1.Pod{Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{status("a", 3)}, InitContainerStatuses: []corev1.ContainerStatus{status("init", 5)}}}, 3},
		"one has not ended": {&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{notReady},
			ContainerStatuses: []corev1.ContainerStatus{status("a", 3), {Name: "b"}}}}, 7},
		"deleted before it had a node": {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(at(40)), DeletionGracePeriodSeconds: ptr.To[int64](30)}}, 10},
		"only created":                 {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1)}}, 1},
	} {
		if got := endedAt(test.pod); !got.Equal(at(test.want).Time) {
			t.Errorf("%s: %v after the start, want %ds", name, got.Sub(controltest.Start), test.want)
		}
	}
}
