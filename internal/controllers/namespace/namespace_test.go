// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var ctx = context.Background()

func served() []*metav1.APIResourceList {
	all := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	return []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: all},
			{Name: "pods/log", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get"}},
			{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: all},
			{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"delete", "list"}},
		}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, Verbs: all},
		}},
	}
}

func TestDeletable(t *testing.T) {
	found, err := deletable(append(served(), &metav1.APIResourceList{GroupVersion: "a/b/c"}))
	if err == nil {
		t.Error("no error for an invalid group version")
	}
	var names []string
	for _, r := range found {
		names = append(names, fmt.Sprintf("%s: list %t, deletecollection %t, pods %t", r.gvr.Resource, r.list, r.collection, r.isPods()))
	}
	want := []string{
		"pods: list true, deletecollection true, pods true",
		"configmaps: list true, deletecollection true, pods false",
		"secrets: list true, deletecollection false, pods false",
		"replicasets: list true, deletecollection true, pods false",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestCatalogFollowsCRDs(t *testing.T) {
	fake := testingclock.NewFakeClock(controltest.Start)
	calls := 0
	var fail error
	c := &catalog{clock: fake, discover: func() ([]*metav1.APIResourceList, error) { calls++; return served(), fail }}
	want := func(n int, when string) {
		t.Helper()
		if found, _, _ := c.resources(); len(found) != 4 || calls != n {
			t.Errorf("%s: %d resources after %d discoveries, want %d", when, len(found), calls, n)
		}
	}
	want(1, "first")
	want(1, "kept")
	fake.Step(discoveryTTL)
	want(2, "too old")
	c.invalidate()
	want(3, "a CRD has changed")
	want(4, "the discovery document may lag behind the CRD")
	fake.Step(discoveryLag + time.Second)
	want(5, "settled")
	want(5, "kept")
	fake.Step(discoveryTTL)
	fail = errors.New("metrics.k8s.io is down")
	want(6, "partial")
	want(7, "a partial discovery is not kept")
}

func TestConditions(t *testing.T) {
	now := controltest.Start
	var conditions []corev1.NamespaceCondition
	if !apply(&conditions, conditionStates(&findings{}), now) || apply(&conditions, conditionStates(&findings{}), now.Add(time.Hour)) {
		t.Error("the conditions should change once")
	}
	if len(conditions) != 5 || slices.ContainsFunc(conditions, func(c corev1.NamespaceCondition) bool { return c.Status != corev1.ConditionFalse }) {
		t.Errorf("conditions %+v", conditions)
	}
	later := now.Add(time.Minute)
	apply(&conditions, conditionStates(&findings{
		discovery: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "x", Version: "v1"}: errors.New("down")}},
		parsing:   errors.New("bad version"),
		content:   []error{errors.New("b"), errors.New("a")},
		remaining: map[schema.GroupVersionResource]int{
			{Version: "v1", Resource: "pods"}: 2, {Group: "apps", Version: "v1", Resource: "replicasets"}: 1},
		finalizers: map[string]int{"z/z": 1, "a/a": 3},
	}), later)
	at := metav1.NewTime(later)
	want := []corev1.NamespaceCondition{
		{Type: "NamespaceDeletionDiscoveryFailure", Status: "True", LastTransitionTime: at, Reason: "DiscoveryFailed",
			Message: "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: x/v1: down"},
		{Type: "NamespaceDeletionGroupVersionParsingFailure", Status: "True", LastTransitionTime: at, Reason: "GroupVersionParsingFailed", Message: "bad version"},
		{Type: "NamespaceDeletionContentFailure", Status: "True", LastTransitionTime: at, Reason: "ContentDeletionFailed",
			Message: "Failed to delete all resource types, 2 remaining: a, b"},
		{Type: "NamespaceContentRemaining", Status: "True", LastTransitionTime: at, Reason: "SomeResourcesRemain",
			Message: "Some resources are remaining: pods. has 2 resource instances, replicasets.apps has 1 resource instances"},
		{Type: "NamespaceFinalizersRemaining", Status: "True", LastTransitionTime: at, Reason: "SomeFinalizersRemain",
			Message: "Some content in the namespace has finalizers remaining: a/a in 3 resource instances, z/z in 1 resource instances"},
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Error(diff)
	}
}

// bench is a reconciler with its own World. It implements the subresource finalize, which the
// in-memory API does not have, and removes a namespace after its last finalizer.
type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, objs ...client.Object) bench {
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", Finalizers: []string{"test/kept-by-spec"}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	w := controltest.New(t, append([]client.Object{ns}, objs...)...)
	w.Must(w.API.Delete(ctx, ns))
	w.Sync()
	env := w.Env()
	env.Client = finalizing{env.Client, w}
	return bench{w, newReconciler(env, func() ([]*metav1.APIResourceList, error) { return served(), nil }), t}
}

type finalizing struct {
	client.Client
	world *controltest.World
}

func (f finalizing) SubResource(name string) client.SubResourceClient {
	if name != "finalize" {
		return f.Client.SubResource(name)
	}
	return finalizeClient{f.Client.SubResource(name), f.world}
}

func (f finalizing) Status() client.SubResourceWriter { return f.SubResource("status") }

type finalizeClient struct {
	client.SubResourceClient
	world *controltest.World
}

func (f finalizeClient) Update(ctx context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	ns := obj.(*corev1.Namespace)
	if len(ns.Spec.Finalizers) == 0 {
		ns.Finalizers = nil
	}
	return f.world.API.Update(ctx, ns)
}

func (b bench) pass() ctrl.Result {
	b.t.Helper()
	b.Sync()
	result, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "ns"}})
	b.Must(err)
	return result
}

func (b bench) gone(obj client.Object) bool {
	b.t.Helper()
	err := b.API.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	if !apierrors.IsNotFound(err) {
		b.Must(err)
	}
	return err != nil
}

func (b bench) namespace() *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
	if b.gone(ns) {
		return nil
	}
	return ns
}

func (b bench) condition(of corev1.NamespaceConditionType) string {
	for _, c := range b.namespace().Status.Conditions {
		if c.Type == of {
			return c.Message
		}
	}
	return ""
}

func in(ns, name string, finalizers ...string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, Finalizers: finalizers}
}

func TestEmptyNamespaceIsReleasedInOnePass(t *testing.T) {
	b := newBench(t)
	if b.pass(); b.namespace() != nil {
		t.Errorf("the namespace still exists: %+v", b.namespace())
	}
}

func TestPodsGoFirst(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: in("ns", "pod", "test/running"), Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](30)}}
	content := []client.Object{&corev1.ConfigMap{ObjectMeta: in("ns", "config")}, &corev1.Secret{ObjectMeta: in("ns", "secret")}}
	other := &corev1.ConfigMap{ObjectMeta: in("other", "config")}
	b := newBench(t, append([]client.Object{pod, other}, content...)...)
	result := b.pass()
	if result.RequeueAfter == 0 || b.gone(pod) || pod.DeletionTimestamp == nil || b.gone(content[0]) || b.gone(content[1]) {
		t.Errorf("after one pass: requeued after %v, pod %+v", result.RequeueAfter, pod.ObjectMeta)
	}
	if got := b.condition(corev1.NamespaceContentRemaining); got != "Some resources are remaining: pods. has 1 resource instances" {
		t.Errorf("content remaining: %q", got)
	}
	if b.namespace().Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("phase %s", b.namespace().Status.Phase)
	}
	if b.Sync(); len(b.namespaceOfPod(ctx, pod)) != 0 {
		t.Error("the end of a pod wakes the namespace, although another pod is left")
	}
	pod.Finalizers = nil
	b.Must(b.API.Update(ctx, pod))
	if b.Sync(); len(b.namespaceOfPod(ctx, pod)) != 1 {
		t.Error("the end of the last pod does not wake the namespace")
	}
	b.pass()
	if b.namespace() != nil || !b.gone(content[0]) || !b.gone(content[1]) || b.gone(other) {
		t.Errorf("after the pod's end: namespace %v", b.namespace())
	}
	if len(b.namespaceOfPod(ctx, pod)) != 0 {
		t.Error("it still waits for pods")
	}
}

func TestFinalizerBlocksTheNamespace(t *testing.T) {
	held := &corev1.ConfigMap{ObjectMeta: in("ns", "held", "test/hold")}
	b := newBench(t, held)
	var last time.Duration
	for range 12 {
		result := b.pass()
		if result.RequeueAfter < last {
			t.Errorf("the delay decreased from %v to %v without progress", last, result.RequeueAfter)
		}
		last = result.RequeueAfter
	}
	if last != maxDelay {
		t.Errorf("the delay has grown to %v", last)
	}
	if got := b.condition(corev1.NamespaceFinalizersRemaining); got != "Some content in the namespace has finalizers remaining: test/hold in 1 resource instances" {
		t.Errorf("finalizers remaining: %q", got)
	}
	if got := b.condition(corev1.NamespaceDeletionContentFailure); got != "All content successfully deleted, may be waiting on finalization" {
		t.Errorf("content failure: %q", got)
	}
	b.Must(b.API.Get(ctx, client.ObjectKeyFromObject(held), held))
	held.Finalizers = nil
	b.Must(b.API.Update(ctx, held))
	if b.pass(); b.namespace() != nil {
		t.Error("the namespace still exists")
	}
}

func TestFailedDiscoveryDeletesKnownContent(t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: in("ns", "config")}
	b := newBench(t, config)
	b.catalog.discover = func() ([]*metav1.APIResourceList, error) { return served(), errors.New("metrics.k8s.io is down") }
	if result := b.pass(); result.RequeueAfter == 0 || !b.gone(config) || b.namespace() == nil {
		t.Error("the namespace should be empty and still exist")
	}
	if got := b.condition(corev1.NamespaceDeletionDiscoveryFailure); got != "metrics.k8s.io is down" {
		t.Errorf("discovery failure: %q", got)
	}
}

func TestLateObjectIsDeleted(t *testing.T) {
	b := newBench(t)
	b.pass()
	late := &corev1.ConfigMap{ObjectMeta: in("ns", "late")}
	b.Must(b.API.Create(ctx, late))
	if result := b.pass(); result.RequeueAfter != finalCheckDelay {
		t.Errorf("requeued after %v", result.RequeueAfter)
	}
	b.Clock.Step(finalCheckDelay)
	if b.pass(); !b.gone(late) {
		t.Error("an object has outlived its namespace")
	}
	if len(b.released)+len(b.inProgress) != 0 {
		t.Errorf("not forgotten: %v %v", b.released, b.inProgress)
	}
}

func TestNewNamespaceOfSameNameIsKept(t *testing.T) {
	b := newBench(t)
	b.pass()
	b.Sync() // the cache does not have the new namespace yet
	b.Must(b.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}))
	kept := &corev1.ConfigMap{ObjectMeta: in("ns", "kept")}
	b.Must(b.API.Create(ctx, kept))
	b.Clock.Step(finalCheckDelay)
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "ns"}})
	b.Must(err)
	if b.gone(kept) {
		t.Error("the content of the new namespace was deleted")
	}
}
