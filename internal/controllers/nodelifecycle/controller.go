// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// Name is the controller's identity.
const Name = "node-controller"

const (
	nodeWorkers = 8
	podWorkers  = 8

	// nodeIndex finds the pods of a node. Only this controller uses it.
	nodeIndex = "nodelifecycle:spec.nodeName"
)

// Add registers the two halves of the controller: one watches nodes and their Leases, the other
// watches pods and changes of their nodes.
func Add(env control.Env) error {
	err := env.Manager.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, nodeIndex, nodeOf)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(nodeWorkers)).
		For(&corev1.Node{}).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(nodeOfLease)).
		Complete(&nodeReconciler{Env: env})
	if err != nil {
		return err
	}
	r := &podReconciler{Env: env}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name+"-pods").
		WithOptions(env.Options(podWorkers)).
		For(&corev1.Pod{}, builder.WithPredicates(podChanges())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.podsOf), builder.WithPredicates(nodeChanges())).
		Complete(r)
}

func nodeOf(obj client.Object) []string {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	return nil
}

// nodeOfLease returns a request for the node of a Lease in kube-node-lease.
func nodeOfLease(_ context.Context, lease client.Object) []reconcile.Request {
	if lease.GetNamespace() != corev1.NamespaceNodeLease {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: lease.GetName()}}}
}

// podsOf returns a request for each pod on a node.
func (r *podReconciler) podsOf(ctx context.Context, node client.Object) []reconcile.Request {
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.MatchingFields{nodeIndex: node.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the pods of a node", "node", node.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// podChanges passes events that change the relation of a pod to its node, but not changes of its
// status: the agent of a recovered node may report its pods as ready before the cache has the
// node as ready.
func podChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return len(nodeOf(e.Object)) > 0 },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, beforeOK := e.ObjectOld.(*corev1.Pod)
			after, afterOK := e.ObjectNew.(*corev1.Pod)
			return beforeOK && afterOK && after.Spec.NodeName != "" &&
				(before.Spec.NodeName != after.Spec.NodeName ||
					!apiequality.Semantic.DeepEqual(before.Spec.Tolerations, after.Spec.Tolerations))
		},
	}
}

// nodeChanges passes events that change a node's readiness or taints. A new node may have taints
// and pods already.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, beforeOK := e.ObjectOld.(*corev1.Node)
			after, afterOK := e.ObjectNew.(*corev1.Node)
			return beforeOK && afterOK && (readiness(before) != readiness(after) ||
				!apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints))
		},
	}
}
