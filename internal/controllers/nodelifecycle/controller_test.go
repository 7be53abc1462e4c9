// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// world is an API, and the two reconcilers with a cache that is never stale.
type world struct {
	t      *testing.T
	api    client.Client
	clock  *testingclock.FakeClock
	events *record.FakeRecorder
	nodes  *nodeReconciler
	pods   *podReconciler
	// refuse, if set, returns the error of a status update.
	refuse func(client.Object) error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	w := &world{
		t: t, clock: testingclock.NewFakeClock(start), events: record.NewFakeRecorder(1000),
		refuse: func(client.Object) error { return nil },
	}
	w.api = fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, nodeIndex, nodeOf).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
				if err := w.refuse(obj); err != nil {
					return err
				}
				return c.SubResource(sub).Update(ctx, obj, opts...)
			},
		}).Build()
	w.restart()
	return w
}

// restart replaces the reconcilers by those of a new process.
func (w *world) restart() {
	env := control.Env{Client: w.api, Live: w.api, Events: w.events, Clock: w.clock}
	w.nodes, w.pods = &nodeReconciler{Env: env}, &podReconciler{Env: env}
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(context.Background(), types.NamespacedName{Name: name}, n))
	return n
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{}
	err := w.api.Get(context.Background(), types.NamespacedName{Namespace: "default", Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return p
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reconcileNode(name string) time.Duration {
	w.t.Helper()
	result, err := w.nodes.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	w.must(err)
	return result.RequeueAfter
}

func (w *world) reconcilePod(name string) time.Duration {
	w.t.Helper()
	result, err := w.pods.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}})
	w.must(err)
	return result.RequeueAfter
}

// beat renews the Lease of a node and reports its status, as its agent would.
func (w *world) beat(name string, ready corev1.ConditionStatus) {
	n := w.node(name)
	n.Status.Conditions[0].Status = ready
	n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(w.clock.Now())
	w.must(w.api.Status().Update(context.Background(), n))
}

func (w *world) said() []string {
	var said []string
	for {
		select {
		case e := <-w.events.Events:
			said = append(said, e)
		default:
			return said
		}
	}
}

func taintsOf(n *corev1.Node) []string {
	var taints []string
	for _, t := range n.Spec.Taints {
		taints = append(taints, t.Key+":"+string(t.Effect))
	}
	return taints
}

func (w *world) wantTaints(name string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, taintsOf(w.node(name))); diff != "" {
		w.t.Errorf("taints of %s (-want +got):\n%s", name, diff)
	}
}

const (
	unreachable = corev1.TaintNodeUnreachable
	notReady    = corev1.TaintNodeNotReady
)

// TestNodeIsLostAndReturns stops and resumes the heartbeats of a node.
func TestNodeIsLostAndReturns(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue))
	if wait := w.reconcileNode("a"); wait != monitorGracePeriod {
		t.Errorf("requeued after %v, want %v", wait, monitorGracePeriod)
	}
	w.clock.Step(30 * time.Second)
	w.must(w.api.Create(context.Background(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "a"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(w.clock.Now()))},
	}))
	w.reconcileNode("a")
	w.clock.Step(49 * time.Second)
	if wait := w.reconcileNode("a"); wait != time.Second {
		t.Errorf("requeued after %v, want 1 s", wait)
	}
	w.wantTaints("a")

	w.clock.Step(time.Second)
	w.beat("b", corev1.ConditionTrue)
	w.reconcileNode("b")
	w.reconcileNode("a")
	if c := w.node("a").Status.Conditions[0]; c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown" {
		t.Errorf("condition Ready is %+v", c)
	}
	w.wantTaints("a", unreachable+":NoSchedule", unreachable+":NoExecute")
	want := []string{
		"Normal RegisteredNode Node a event: Registered Node a in Controller",
		"Normal RegisteredNode Node b event: Registered Node b in Controller",
		"Normal NodeNotReady Node a status is now: NodeNotReady",
	}
	if diff := cmp.Diff(want, w.said()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	w.beat("a", corev1.ConditionFalse)
	w.reconcileNode("a")
	w.wantTaints("a", notReady+":NoSchedule", notReady+":NoExecute")
	w.beat("a", corev1.ConditionTrue)
	w.reconcileNode("a")
	w.wantTaints("a")

	w.must(w.api.Delete(context.Background(), w.node("a")))
	w.reconcileNode("a")
	if diff := cmp.Diff([]string{"Normal RemovingNode Node a event: Removing Node a from Controller"}, w.said()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestStaleLease uses a cache without the renewal of a Lease that the API has.
func TestStaleLease(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionTrue))
	w.nodes.Live = fake.NewClientBuilder().WithObjects(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "a"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(at(55 * time.Second)))},
	}).Build()
	w.reconcileNode("a")
	w.clock.Step(time.Minute)
	w.reconcileNode("a")
	if got := readiness(w.node("a")); got != corev1.ConditionTrue {
		t.Errorf("Ready is %s", got)
	}
	w.clock.Step(time.Minute)
	w.reconcileNode("a")
	if got := readiness(w.node("a")); got != corev1.ConditionUnknown {
		t.Errorf("Ready is %s, although there are no heartbeats", got)
	}
}

// TestAllNodesLost loses the nodes one by one. When all are lost, no pods are evicted; when one
// returns, evictions continue, one node at a time.
func TestAllNodesLost(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionUnknown), node("b", corev1.ConditionUnknown), node("c", corev1.ConditionTrue))
	w.reconcileNode("a")
	w.reconcileNode("b")
	w.wantTaints("a", unreachable+":NoSchedule", unreachable+":NoExecute")
	w.wantTaints("b", unreachable+":NoSchedule") // one node in 10 s

	w.beat("c", corev1.ConditionUnknown)
	w.reconcileNode("c")
	for _, name := range []string{"a", "b", "c"} {
		w.clock.Step(10 * time.Second)
		if wait := w.reconcileNode(name); wait != monitorPeriod {
			t.Errorf("%s is requeued after %v", name, wait)
		}
		w.wantTaints(name, unreachable+":NoSchedule")
	}

	w.beat("c", corev1.ConditionTrue)
	w.reconcileNode("c")
	w.wantTaints("c")
	w.reconcileNode("b")
	w.wantTaints("b", unreachable+":NoSchedule", unreachable+":NoExecute")
	w.clock.Step(9 * time.Second)
	w.reconcileNode("a")
	w.wantTaints("a", unreachable+":NoSchedule")
	w.clock.Step(time.Second)
	w.reconcileNode("a")
	w.wantTaints("a", unreachable+":NoSchedule", unreachable+":NoExecute")
}

func TestBetaLabels(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionTrue, func(n *corev1.Node) {
		n.Labels = map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "arm64", "beta.kubernetes.io/arch": "amd64"}
	}))
	w.reconcileNode("a")
	want := map[string]string{
		corev1.LabelOSStable: "linux", "beta.kubernetes.io/os": "linux",
		corev1.LabelArchStable: "arm64", "beta.kubernetes.io/arch": "arm64",
	}
	if diff := cmp.Diff(want, w.node("a").Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func pod(name, nodeName string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 1,
			CreationTimestamp: atMeta(-time.Hour), Finalizers: []string{"test/keep"},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Tolerations: tolerations},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: atMeta(-time.Hour)},
		}},
	}
}

func tolerating(seconds int64) corev1.Toleration {
	return corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
}

func TestPodsOfALostNode(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionUnknown), pod("p", "a"), pod("q", ""))
	w.reconcilePod("p")
	w.reconcilePod("q")
	if ready := pods.Condition(w.pod("p"), corev1.PodReady); ready.Status != corev1.ConditionFalse || !ready.LastTransitionTime.Time.Equal(start) {
		t.Errorf("Ready is %+v", ready)
	}
	if diff := cmp.Diff([]string{"Warning NodeNotReady Node is not ready"}, w.said()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	before := w.pod("p").ResourceVersion
	w.reconcilePod("p")
	if after := w.pod("p").ResourceVersion; after != before {
		t.Error("an unchanged pod was written")
	}
}

func TestEviction(t *testing.T) {
	addedNow := node("a", corev1.ConditionTrue, tainted("user", corev1.TaintEffectNoExecute))
	tests := []struct {
		name string
		pod  *corev1.Pod
		wait time.Duration
	}{
		{name: "not tolerated", pod: pod("p", "a")},
		{name: "tolerated without limit", pod: pod("p", "a", corev1.Toleration{Operator: corev1.TolerationOpExists}), wait: -1},
		{name: "tolerated for 30 s", pod: pod("p", "a", tolerating(30)), wait: 30 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, addedNow.DeepCopy(), test.pod)
			wait := w.reconcilePod("p")
			if test.wait > 0 {
				if wait != test.wait {
					t.Fatalf("requeued after %v, want %v", wait, test.wait)
				}
				w.clock.Step(wait - time.Second)
				if wait := w.reconcilePod("p"); wait != time.Second || w.pod("p").DeletionTimestamp != nil {
					t.Fatalf("a second before the eviction: requeued after %v", wait)
				}
				w.clock.Step(time.Second)
				w.reconcilePod("p")
			}
			p := w.pod("p")
			if test.wait < 0 {
				if p.DeletionTimestamp != nil || len(w.said()) > 0 {
					t.Error("evicted")
				}
				return
			}
			if p.DeletionTimestamp == nil {
				t.Fatal("not evicted")
			}
			target := pods.Condition(p, corev1.DisruptionTarget)
			if target == nil || target.Status != corev1.ConditionTrue || target.Reason != "DeletionByTaintManager" ||
				target.Message != "Taint manager: deleting due to NoExecute taint" || target.ObservedGeneration != 1 {
				t.Errorf("DisruptionTarget is %+v", target)
			}
			w.reconcilePod("p") // it is terminating: no more writes and events
			if diff := cmp.Diff([]string{"Normal TaintManagerEviction Marking for deletion Pod default/p"}, w.said()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictionIsCancelled removes the taint before the tolerated time ends.
func TestEvictionIsCancelled(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionTrue, tainted("user", corev1.TaintEffectNoExecute)), pod("p", "a", tolerating(30)), pod("q", "a", tolerating(30)))
	w.reconcilePod("p")
	w.reconcilePod("q")
	n := w.node("a")
	n.Spec.Taints = nil
	w.must(w.api.Update(context.Background(), n))
	w.clock.Step(time.Minute)
	w.reconcilePod("p")
	q := w.pod("q")
	q.Finalizers = nil
	w.must(w.api.Update(context.Background(), q))
	w.must(w.api.Delete(context.Background(), q))
	w.reconcilePod("q")
	want := []string{
		"Normal TaintManagerEviction Cancelling deletion of Pod default/p",
		"Normal TaintManagerEviction Cancelling deletion of Pod default/q",
	}
	if diff := cmp.Diff(want, w.said()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if w.pod("p").DeletionTimestamp != nil {
		t.Error("evicted, although the taint was removed")
	}
}

// TestTolerationTimeIsNotRestarted replaces a taint by another one, and the process by a new one.
// Neither restarts the pod's tolerated time, if the taint has a timeAdded.
func TestTolerationTimeIsNotRestarted(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionUnknown), node("b", corev1.ConditionTrue), pod("p", "a", tolerating(300)))
	w.reconcileNode("a")
	if wait := w.reconcilePod("p"); wait != 300*time.Second {
		t.Fatalf("evicted in %v", wait)
	}
	w.clock.Step(100 * time.Second)
	w.restart()
	if wait := w.reconcilePod("p"); wait != 200*time.Second {
		t.Fatalf("after a restart: evicted in %v, want 200 s", wait)
	}
	w.beat("a", corev1.ConditionFalse)
	w.reconcileNode("a")
	w.wantTaints("a", notReady+":NoSchedule", notReady+":NoExecute")
	if wait := w.reconcilePod("p"); wait != 200*time.Second {
		t.Fatalf("after the change of taints: evicted in %v, want 200 s", wait)
	}
}

// TestConflictIsRetried lets another client change the pod's status.
func TestConflictIsRetried(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionTrue, tainted("user", corev1.TaintEffectNoExecute)), pod("p", "a"))
	w.refuse = func(client.Object) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("modified"))
	}
	if wait := w.reconcilePod("p"); wait != staleDelay {
		t.Errorf("requeued after %v, want %v", wait, staleDelay)
	}
	w.refuse = func(client.Object) error { return nil }
	w.reconcilePod("p")
	if w.pod("p").DeletionTimestamp == nil {
		t.Error("not evicted")
	}
}

func TestRequestsFromEvents(t *testing.T) {
	w := newWorld(t, node("a", corev1.ConditionTrue), pod("p", "a"), pod("q", "b"), pod("r", ""))
	if got := fmt.Sprint(w.pods.podsOf(context.Background(), w.node("a"))); got != "[default/p]" {
		t.Errorf("pods of a: %s", got)
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "a"}}
	if got := fmt.Sprint(nodeOfLease(context.Background(), l)); got != "[/a]" {
		t.Errorf("node of a Lease: %s", got)
	}
	l.Namespace = "kube-system"
	if got := nodeOfLease(context.Background(), l); got != nil {
		t.Errorf("node of a Lease in another namespace: %s", got)
	}
}
