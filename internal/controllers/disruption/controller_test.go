// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "web"}
)

// scaleClient serves the scale subresources of owners that are not cached, by their names.
type scaleClient struct {
	client.Client
	scales map[string]int64
}

func (c scaleClient) SubResource(name string) client.SubResourceClient {
	return scaleReader{c.Client.SubResource(name), c.scales}
}

type scaleReader struct {
	client.SubResourceClient
	scales map[string]int64
}

func (r scaleReader) Get(_ context.Context, owner, out client.Object, _ ...client.SubResourceGetOption) error {
	replicas, ok := r.scales[owner.GetName()]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, owner.GetName())
	}
	out.SetUID(types.UID("uid-" + owner.GetName()))
	return unstructured.SetNestedField(out.(*unstructured.Unstructured).Object, replicas, "spec", "replicas")
}

type bench struct {
	*controltest.World
	*reconciler
	t      *testing.T
	scales map[string]int64
}

func newBudget(minimum, maximum string) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	if minimum != "" {
		budget.Spec.MinAvailable = ptr.To(intstr.Parse(minimum))
	}
	if maximum != "" {
		budget.Spec.MaxUnavailable = ptr.To(intstr.Parse(maximum))
	}
	return budget
}

func newBench(t *testing.T, objs ...client.Object) *bench {
	w := controltest.New(t, objs...)
	for _, version := range w.Served.Resources {
		if version.GroupVersion == "apps/v1" {
			version.APIResources = append(version.APIResources, metav1.APIResource{Name: "replicasets/scale", Kind: "Scale"})
		}
	}
	b := &bench{World: w, t: t, scales: map[string]int64{}}
	env := w.Env()
	env.Client = scaleClient{env.Client, b.scales}
	b.reconciler = newReconciler(env)
	return b
}

func (b *bench) status() string {
	b.t.Helper()
	budget := &policyv1.PodDisruptionBudget{}
	b.Must(b.API.Get(ctx, key, budget))
	return text(budget.Status)
}

func (b *bench) run() error {
	b.t.Helper()
	b.Sync()
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	return err
}

// ownedBy returns a pod of an owner.
func ownedBy(owner client.Object, kind schema.GroupVersionKind) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	}
}

var replicaSets = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// Pods of two ReplicaSets of one Deployment count as the Deployment's, and others as their owners'.
func TestScaleOfOwners(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](4)}}
	alone := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "alone"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](2)}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set"}, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}}
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rc"}, Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](5)}}
	custom := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "custom", UID: "uid-custom"}}
	b := newBench(t, newBudget("50%", ""), deployment, alone, set, rc)
	b.scales["custom"] = 6
	add := func(name string, of func(*corev1.Pod)) { b.Must(b.API.Create(ctx, newPod(name, of))) }
	for i := range 2 {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("web-", i),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}}}
		b.Must(b.API.Create(ctx, rs))
		add(fmt.Sprint("web-", i), ownedBy(rs, replicaSets))
	}
	add("alone", ownedBy(alone, replicaSets))
	add("set", ownedBy(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
	add("rc", ownedBy(rc, corev1.SchemeGroupVersion.WithKind("ReplicationController")))
	add("custom-0", ownedBy(custom, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Custom"}))
	add("custom-1", ownedBy(custom, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Custom"}))
	b.Must(b.run())
	if got, want := b.status(), "7 of 10 healthy, 20 expected, 0 allowed: InsufficientPods"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFailures(t *testing.T) {
	gone := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "uid-gone"}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "uid-job"}}
	for _, tt := range []struct {
		name        string
		pod         *corev1.Pod
		status, why string
	}{
		{"the owner is gone", newPod("a", ownedBy(gone, replicaSets)), "0 of 0 healthy, 0 expected, 0 allowed: SyncFailed", "found no controllers for pod \"a\""},
		{"the owner has no scale", newPod("a", ownedBy(job, batchv1.SchemeGroupVersion.WithKind("Job"))), "0 of 0 healthy, 0 expected, 0 allowed: SyncFailed",
			"jobs.batch does not implement the scale subresource"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newBudget("", "1"), tt.pod)
			for range 2 {
				if err := b.run(); err == nil || err.Error() != tt.why {
					t.Errorf("error %v", err)
				}
			}
			if got := b.status(); got != tt.status {
				t.Errorf("%s, want %s", got, tt.status)
			}
			if diff := cmp.Diff([]string{"Warning CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: " + tt.why}, b.Events()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Pods without owners count by a number, but not by a percentage.
func TestUnmanagedPods(t *testing.T) {
	b := newBench(t, newBudget("1", ""), newPod("a"), newPod("b"), newPod("c", unready))
	b.Must(b.run())
	if got, want := b.status(), "2 of 1 healthy, 3 expected, 1 allowed: SufficientPods"; got != want || len(b.Events()) != 0 {
		t.Errorf("%s, want %s", got, want)
	}
	b = newBench(t, newBudget("50%", ""), newPod("a"))
	b.Must(b.run())
	if got, want := b.status(), "1 of 0 healthy, 0 expected, 0 allowed: InsufficientPods"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if events := b.Events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning UnmanagedPods Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: web,}") {
		t.Errorf("events %q", events)
	}
	b = newBench(t, newBudget("50%", ""))
	b.Must(b.run())
	if diff := cmp.Diff([]string{"Normal NoPods No matching pods found"}, b.Events()); diff != "" {
		t.Error(diff)
	}
}

// A pod that was evicted counts as gone for two minutes, and again as healthy if it was not deleted.
// A held budget is current, too.
func TestEvictionIsForgotten(t *testing.T) {
	budget := newBudget("1", "")
	budget.Annotations = map[string]string{ownership.HoldAnnotation: ""}
	budget.Status.DisruptedPods = map[string]metav1.Time{"a": metav1.NewTime(controltest.Start), "gone": metav1.NewTime(controltest.Start)}
	b := newBench(t, budget, newPod("a"), newPod("b"))
	b.Sync()
	result, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(err)
	if got, want := b.status(), "1 of 1 healthy, 2 expected, 0 allowed: InsufficientPods"; got != want || result.RequeueAfter != deletionTimeout {
		t.Errorf("%s, want %s; requeued after %v", got, want, result.RequeueAfter)
	}
	b.Clock.Step(deletionTimeout)
	b.Must(b.run())
	if got, want := b.status(), "2 of 1 healthy, 2 expected, 1 allowed: SufficientPods"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if diff := cmp.Diff([]string{"Warning NotDeleted Pod was expected by PDB ns/web to be deleted but it wasn't"}, b.Events()); diff != "" {
		t.Error(diff)
	}
}

// An eviction that was counted after the cached version is not overwritten.
func TestStaleBudgetIsNotWritten(t *testing.T) {
	b := newBench(t, newBudget("1", ""), newPod("a"), newPod("b"))
	budget := &policyv1.PodDisruptionBudget{}
	b.Must(b.API.Get(ctx, key, budget))
	budget.Status.DisruptedPods = map[string]metav1.Time{"a": metav1.NewTime(controltest.Start)}
	b.Must(b.API.Status().Update(ctx, budget))
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(err)
	b.Must(b.API.Get(ctx, key, budget))
	if len(budget.Status.DisruptedPods) != 1 {
		t.Error("the eviction was overwritten")
	}
}

func target(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pods.SetDisruptionTarget(pod, reason, "why", controltest.Start) }
}

func TestStaleDisruptionTarget(t *testing.T) {
	ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	held := func(pod *corev1.Pod) { pod.Annotations = map[string]string{ownership.HoldAnnotation: ""} }
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		reset bool
	}{
		{"evicted, but not deleted", newPod("a", target("EvictionByEvictionAPI")), true},
		{"by the node agent", newPod("a", target(corev1.PodReasonTerminationByKubelet)), false},
		{"deleted", newPod("a", target("EvictionByEvictionAPI"), deleted), false},
		{"ended", newPod("a", target("EvictionByEvictionAPI"), ended), false},
		{"on hold", newPod("a", target("EvictionByEvictionAPI"), held), false},
		{"no target", newPod("a"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := controltest.New(t)
			tt.pod.ResourceVersion, tt.pod.UID = "", ""
			remove := tt.pod.DeletionTimestamp != nil
			tt.pod.DeletionTimestamp = nil
			w.Must(w.API.Create(ctx, tt.pod))
			if remove {
				w.Must(w.API.Delete(ctx, tt.pod))
			}
			r := &resetter{client: w.Env().Client, clock: w.Clock}
			pass := func() ctrl.Result {
				w.Sync()
				result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tt.pod)})
				w.Must(err)
				return result
			}
			w.Clock.Step(staleAfter - time.Second)
			if after := pass().RequeueAfter; (after == time.Second) != tt.reset {
				t.Errorf("requeued after %v", after)
			}
			w.Clock.Step(time.Second)
			pass()
			pod := &corev1.Pod{}
			w.Must(w.API.Get(ctx, client.ObjectKeyFromObject(tt.pod), pod))
			c := pods.Condition(pod, corev1.DisruptionTarget)
			if reset := c != nil && c.Status == corev1.ConditionFalse && c.Reason == "" && c.Message == ""; reset != tt.reset {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

// TestWatches runs the controller under a manager, to test what wakes it.
func TestWatches(t *testing.T) {
	w := controltest.New(t)
	w.Run(t, control.Controller{Name: Name, Add: Add})
	b := &bench{World: w, t: t}
	eventually := func(want string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); b.status() != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s, want %s", b.status(), want)
			}
		}
	}
	w.Must(w.API.Create(ctx, newBudget("1", "")))
	eventually("0 of 1 healthy, 0 expected, 0 allowed: InsufficientPods")
	pod := newPod("a", unready)
	w.Must(w.API.Create(ctx, pod))
	w.Must(w.API.Create(ctx, newPod("b")))
	eventually("1 of 1 healthy, 2 expected, 0 allowed: InsufficientPods")
	pod.Status.Conditions[0].Status = corev1.ConditionTrue
	w.Must(w.API.Status().Update(ctx, pod))
	eventually("2 of 1 healthy, 2 expected, 1 allowed: SufficientPods")
	pod.Labels = nil
	w.Must(w.API.Update(ctx, pod))
	eventually("1 of 1 healthy, 1 expected, 0 allowed: InsufficientPods")
	w.Must(w.API.Delete(ctx, newPod("b")))
	eventually("0 of 1 healthy, 0 expected, 0 allowed: InsufficientPods")
}
