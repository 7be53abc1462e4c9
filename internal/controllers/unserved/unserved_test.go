// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kindred-project/kindred/internal/unserved"
)

// TestRecordedOnce: the event is recorded after the grace period, once, by whichever process; and not if another
// scheduler takes the pod, or a part records an event of its own.
func TestRecordedOnce(t *testing.T) {
	ctx, began := context.Background(), time.Unix(1e9, 0)
	clock := testingclock.NewFakeClock(began)
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-a-pod", CreationTimestamp: metav1.NewTime(began)},
			Spec:       corev1.PodSpec{SchedulerName: "mine"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		change(p)
		return p
	}
	api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
		pod("waits", func(*corev1.Pod) {}),
		pod("bound", func(p *corev1.Pod) { p.Spec.NodeName = "n" }),
		pod("volume", func(p *corev1.Pod) {
			p.Spec.SchedulerName = corev1.DefaultSchedulerName
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}}}
		}),
	).Build()
	reconcile := func(name string) ctrl.Result {
		t.Helper()
		// Each Reconcile is that of a new process: nothing is remembered.
		r := &reconciler{client: api, clock: clock, kind: "Pod", new: func() client.Object { return &corev1.Pod{} }}
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	events := func() []corev1.Event {
		t.Helper()
		list := &corev1.EventList{}
		if err := api.List(ctx, list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	if result := reconcile("waits"); result.RequeueAfter != grace || len(events()) != 0 {
		t.Errorf("a new pod: %v, events %v", result, events())
	}
	clock.Step(grace)
	for range 2 {
		for _, name := range []string{"waits", "bound", "volume", "gone"} {
			reconcile(name)
		}
	}
	got := events()
	if len(got) != 1 || got[0].InvolvedObject.Name != "waits" || got[0].Reason != unserved.Reason || got[0].Type != corev1.EventTypeWarning {
		t.Fatalf("events %v", got)
	}
	// The API deletes events after an hour.
	if err := api.Delete(ctx, &got[0]); err != nil {
		t.Fatal(err)
	}
	clock.Step(memory)
	reconcile("waits")
	if got := events(); len(got) != 0 {
		t.Errorf("repeated after the API deleted it: %v", got)
	}
}
