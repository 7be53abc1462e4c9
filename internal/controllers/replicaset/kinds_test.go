// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

// tested is a kind under test. Tests use ReplicaSets, which are converted to the kind in the API.
type tested struct {
	gvk               schema.GroupVersionKind
	countsTerminating bool
	reconciler        func(*controltest.World) reconcile.Reconciler
	object            func(*appsv1.ReplicaSet) client.Object
	get               func(c client.Client, key client.ObjectKey) (*appsv1.ReplicaSet, error)
}

func testable[O any, P object[O]](of kind[O, P], object func(*appsv1.ReplicaSet) client.Object) tested {
	return tested{
		gvk:               of.gvk,
		countsTerminating: of.countsTerminating,
		reconciler:        func(w *controltest.World) reconcile.Reconciler { return newReconciler(w.Env(), of, w.Seen) },
		object:            object,
		get: func(c client.Client, key client.ObjectKey) (*appsv1.ReplicaSet, error) {
			obj := P(new(O))
			err := c.Get(ctx, key, obj)
			return of.view(obj), err
		},
	}
}

// forKinds runs a test with each of the kinds.
func forKinds(t *testing.T, test func(*testing.T, tested)) {
	for _, kind := range []tested{
		testable(replicaSets, func(rs *appsv1.ReplicaSet) client.Object { return rs }),
		testable(replicationControllers, func(rs *appsv1.ReplicaSet) client.Object { return asReplicationController(rs) }),
	} {
		t.Run(kind.gvk.Kind, func(t *testing.T) { test(t, kind) })
	}
}

// asReplicationController converts a ReplicaSet.
func asReplicationController(rs *appsv1.ReplicaSet) *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: rs.ObjectMeta,
		Spec: corev1.ReplicationControllerSpec{
			Replicas:        rs.Spec.Replicas,
			MinReadySeconds: rs.Spec.MinReadySeconds,
			Selector:        rs.Spec.Selector.MatchLabels,
			Template:        &rs.Spec.Template,
		},
	}
}

// bench is a reconciler of one kind with its own World.
type bench struct {
	*controltest.World
	tested
	reconcile.Reconciler
}

func newBench(t *testing.T, kind tested, sets ...*appsv1.ReplicaSet) bench {
	var objs []client.Object
	for _, rs := range sets {
		objs = append(objs, kind.object(rs))
	}
	w := controltest.New(t, objs...)
	return bench{w, kind, kind.reconciler(w)}
}

func (b bench) reconcile(name string) (ctrl.Result, error) {
	return b.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}})
}

func (b bench) read(name string) *appsv1.ReplicaSet {
	rs, err := b.get(b.API, client.ObjectKey{Namespace: "ns", Name: name})
	b.Must(err)
	return rs
}

// edit changes the object of this name, as a user would.
func (b bench) edit(name string, change func(*appsv1.ReplicaSet)) {
	rs := b.read(name).DeepCopy()
	change(rs)
	b.Must(b.API.Update(ctx, b.object(rs)))
}

// settle reconciles with a fresh cache until nothing changes.
func (b bench) settle(t *testing.T, name string) *appsv1.ReplicaSet {
	t.Helper()
	before := ""
	for range 10 {
		b.Sync()
		if _, err := b.reconcile(name); err != nil {
			t.Fatal(err)
		}
		rs := b.read(name)
		if rs.ResourceVersion == before {
			return rs
		}
		before = rs.ResourceVersion
	}
	t.Fatal("the object keeps changing")
	return nil
}

func (b bench) pods() []*corev1.Pod {
	list := &corev1.PodList{}
	b.Must(b.API.List(ctx, list))
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

func (b bench) active() []*corev1.Pod {
	return slices.DeleteFunc(b.pods(), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}
