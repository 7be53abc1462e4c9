// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// adopters returns a request for each DaemonSet that selects an orphaned pod or revision.
func (r *reconciler) adopters(ctx context.Context, orphan client.Object) []reconcile.Request {
	found := &appsv1.DaemonSetList{}
	if err := r.client.List(ctx, found, client.InNamespace(orphan.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the DaemonSets that may adopt an object", "object", klog.KObj(orphan))
		return nil
	}
	return owned.Selecting(orphan, found.Items, func(ds *appsv1.DaemonSet) *metav1.LabelSelector { return ds.Spec.Selector })
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// nodeHandler requeues the DaemonSets that are affected by a change of a node. Most status
// reports of nodes affect none.
func (r *reconciler) nodeHandler() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.requeueAffected(ctx, q, nil, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.requeueAffected(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.requeueAffected(ctx, q, e.Object, nil) },
	}
}

// requeueAffected requeues the DaemonSets for which the fitness of a node changes. before is nil for a
// new node, after for a deleted one.
func (r *reconciler) requeueAffected(ctx context.Context, q queue, before, after client.Object) {
	old, _ := before.(*corev1.Node)
	current, _ := after.(*corev1.Node)
	if old != nil && current != nil && isSameFit(old, current) {
		return
	}
	found := &appsv1.DaemonSetList{}
	if err := r.client.List(ctx, found, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the DaemonSets that a node may affect")
		return
	}
	for i := range found.Items {
		fitter := newFitter(&found.Items[i])
		if fitter.fitOrNone(old) != fitter.fitOrNone(current) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
		}
	}
}

// isSameFit reports whether two states of a node differ in nothing that affects its fitness.
func isSameFit(a, b *corev1.Node) bool {
	return apiequality.Semantic.DeepEqual(a.Labels, b.Labels) && apiequality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints)
}

// fitOrNone returns the fitness of a node. A DaemonSet may run no pod on a nil one.
func (f fitter) fitOrNone(node *corev1.Node) fitness {
	if node == nil {
		return fitness{}
	}
	return f.fit(node)
}
