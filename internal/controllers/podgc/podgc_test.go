// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

var ctx = context.Background()

func newPod(name, node string, phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(controltest.Start)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: phase},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: controltest.Start} }

func newNode(name string, ready corev1.ConditionStatus, taints ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return node
}

func TestGarbage(t *testing.T) {
	nodes := map[string]*corev1.Node{
		"good":    newNode("good", corev1.ConditionTrue),
		"tainted": newNode("tainted", corev1.ConditionTrue, corev1.TaintNodeOutOfService),
		"down":    newNode("down", corev1.ConditionUnknown),
		"out":     newNode("out", corev1.ConditionUnknown, corev1.TaintNodeOutOfService),
	}
	old := func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(controltest.Start.Add(-time.Hour)) }
	held := func(pod *corev1.Pod) { pod.Annotations = map[string]string{ownership.HoldAnnotation: ""} }
	evicted := func(pod *corev1.Pod) { pod.Status.Reason = "Evicted" }
	got := map[string]reason{}
	for _, v := range garbage([]*corev1.Pod{
		newPod("runs", "good", corev1.PodRunning),
		newPod("stops", "good", corev1.PodRunning, deleted),
		newPod("stops-on-ready", "tainted", corev1.PodRunning, deleted),
		newPod("stops-on-down", "down", corev1.PodRunning, deleted),
		newPod("stops-on-out", "out", corev1.PodRunning, deleted),
		newPod("runs-on-out", "out", corev1.PodRunning),
		newPod("waits", "", corev1.PodPending),
		newPod("never", "", corev1.PodPending, deleted),
		newPod("lost", "gone", corev1.PodRunning),
		newPod("lost-done", "gone", corev1.PodSucceeded),
		newPod("maybe-lost", "late", corev1.PodRunning),
		newPod("done-old", "good", corev1.PodSucceeded, old),
		newPod("done-a", "good", corev1.PodFailed),
		newPod("done-b", "good", corev1.PodFailed),
		newPod("done-evicted", "good", corev1.PodFailed, evicted),
		newPod("held-lost", "gone", corev1.PodRunning, held),
		newPod("held-done-older", "good", corev1.PodSucceeded, old, held),
		newPod("held-never", "", corev1.PodPending, held, deleted),
	}, nodes, map[string]bool{"gone": true}, 2) {
		got[v.pod.Name] = v.reason
	}
	want := map[string]reason{
		"stops-on-out": outOfService, "never": neverRan, "held-never": neverRan, "lost": orphaned, "lost-done": orphaned,
		"done-evicted": tooMany, "done-old": tooMany,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func (b bench) run(t *testing.T) {
	t.Helper()
	b.Sync()
	result, err := b.Reconcile(ctx, ctrl.Request{})
	if err != nil || result.RequeueAfter != period {
		t.Fatalf("requeued after %v, error %v", result.RequeueAfter, err)
	}
}

type bench struct {
	*controltest.World
	*reconciler
}

func newBench(t *testing.T, objs ...client.Object) bench {
	w := controltest.New(t, objs...)
	return bench{w, newReconciler(w.Env(), 0)}
}

func (b bench) find(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, pod) != nil {
		return nil
	}
	return pod
}

// held keeps a pod in the API after its deletion by a finalizer, so that the test can check its
// last status.
func held(pod *corev1.Pod) { pod.Finalizers = []string{"test/hold"} }

func TestPodsOfALostNode(t *testing.T) {
	b := newBench(t, newNode("here", corev1.ConditionTrue),
		newPod("stays", "here", corev1.PodRunning), newPod("lost", "gone", corev1.PodRunning, held), newPod("done", "gone", corev1.PodSucceeded))
	b.run(t)
	b.Clock.Step(quarantine - time.Second)
	b.run(t)
	if b.find("lost").DeletionTimestamp != nil {
		t.Fatal("deleted within the quarantine")
	}
	b.Clock.Step(time.Second)
	b.run(t)
	pod := b.find("lost")
	if pod.DeletionTimestamp == nil || pod.Status.Phase != corev1.PodFailed || b.find("done") != nil || b.find("stays").DeletionTimestamp != nil {
		t.Errorf("pod is %s, deleted at %v", pod.Status.Phase, pod.DeletionTimestamp)
	}
	c := pods.Condition(pod, corev1.DisruptionTarget)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != "DeletionByPodGC" || c.Message != "PodGC: node no longer exists" {
		t.Errorf("condition %+v", c)
	}
}

func TestThreshold(t *testing.T) {
	for threshold, want := range map[int]int{-1: 4, 0: 4, 1: 1, 3: 3, 9: 4} {
		var objs []client.Object
		for i := range 4 {
			objs = append(objs, newPod(fmt.Sprint("done", i), "here", corev1.PodSucceeded))
		}
		b := newBench(t, append(objs, newNode("here", corev1.ConditionTrue), newPod("runs", "here", corev1.PodRunning))...)
		b.reconciler = newReconciler(b.Env(), threshold)
		b.run(t)
		kept := &corev1.PodList{}
		b.Must(b.API.List(ctx, kept))
		if got := len(kept.Items) - 1; got != want || b.find("runs") == nil {
			t.Errorf("threshold %d: %d ended pods are kept, want %d", threshold, got, want)
		}
	}
}

func TestUncachedNodeIsNotLost(t *testing.T) {
	b := newBench(t, newPod("pod", "late", corev1.PodRunning))
	_, err := b.Reconcile(ctx, ctrl.Request{})
	b.Must(err)
	b.Must(b.API.Create(ctx, newNode("late", corev1.ConditionTrue)))
	b.Clock.Step(quarantine)
	_, err = b.Reconcile(ctx, ctrl.Request{}) // with a stale cache
	b.Must(err)
	if b.find("pod") == nil {
		t.Error("the node exists, but its pod was deleted")
	}
}

func TestReturnedNodeRestartsQuarantine(t *testing.T) {
	b := newBench(t, newPod("pod", "node", corev1.PodRunning))
	b.run(t)
	b.Clock.Step(quarantine / 2)
	node := newNode("node", corev1.ConditionTrue)
	b.Must(b.API.Create(ctx, node))
	b.run(t)
	b.Must(b.API.Delete(ctx, node))
	b.Clock.Step(quarantine)
	b.run(t)
	if b.find("pod") == nil {
		t.Error("the pod was deleted, although its node had returned")
	}
}

func TestPodsOfANodeOutOfService(t *testing.T) {
	pod := newPod("stuck", "out", corev1.PodRunning, held)
	b := newBench(t, newNode("out", corev1.ConditionUnknown, corev1.TaintNodeOutOfService), pod)
	b.Must(b.API.Delete(ctx, pod))
	b.run(t)
	got := b.find("stuck")
	if got.Status.Phase != corev1.PodFailed || pods.Condition(got, corev1.DisruptionTarget) != nil {
		t.Errorf("status %+v", got.Status)
	}
}

// A new pod may have the name.
func TestNewPodOfSameNameIsKept(t *testing.T) {
	b := newBench(t, newPod("pod", "gone", corev1.PodRunning))
	b.run(t)
	b.Must(b.API.Delete(ctx, b.find("pod")))
	b.Must(b.API.Create(ctx, newPod("pod", "good", corev1.PodRunning)))
	b.Clock.Step(quarantine)
	_, err := b.Reconcile(ctx, ctrl.Request{})
	b.Must(err)
	if got := b.find("pod"); got == nil || got.Status.Phase != corev1.PodRunning {
		t.Errorf("the new pod is %+v", got)
	}
}

func TestFailureIsRetried(t *testing.T) {
	var objs []client.Object
	for i := range 3 {
		objs = append(objs, newPod(fmt.Sprint("pod", i), "gone", corev1.PodSucceeded))
	}
	b := newBench(t, objs...)
	b.run(t)
	b.Clock.Step(quarantine)
	b.Refuse = func(_ string, obj client.Object) error {
		if obj.GetName() == "pod1" {
			return errors.New("no")
		}
		return nil
	}
	b.Sync()
	if _, err := b.Reconcile(ctx, ctrl.Request{}); err == nil {
		t.Error("no error, so the request is not retried")
	}
	if b.find("pod0") != nil || b.find("pod2") != nil || b.find("pod1") == nil {
		t.Error("one failure prevented other deletions")
	}
}
