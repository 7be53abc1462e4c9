// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroup delays the deletion of a PodGroup while pods of the group have not ended.
// Admission gives each new PodGroup a finalizer (PodGroupProtection); the controller removes it.
package podgroup

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Name is the identity of the controller.
const Name = "podgroup-protection-controller"

const (
	workers   = 5
	finalizer = "scheduling.k8s.io/podgroup-protection"
)

// Resource is the resource without which the controller is not started.
var Resource = schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups")

// groupIndex indexes the pods that have not ended by the name of their group.
const groupIndex = "activePodSchedulingGroup"

// Add registers the controller. It is woken by PodGroups that are being deleted, and by pods of a
// group that have ended or are gone.
func Add(env control.Env) error {
	if err := env.Manager.GetCache().IndexField(context.Background(), &corev1.Pod{}, groupIndex, activeGroups); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&schedulingv1beta1.PodGroup{}, builder.WithPredicates(predicate.NewPredicateFuncs(isReleasable))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(groupOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return hasEnded(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return hasEnded(e.ObjectNew) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
			},
		})).
		Complete(&reconciler{env.Client})
}

// isReleasable reports whether a PodGroup is being deleted and waits for the controller.
func isReleasable(group client.Object) bool {
	return group.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(group, finalizer)
}

func hasEnded(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && pods.IsTerminal(pod)
}

// groupName returns the name of a pod's group, or "".
func groupName(obj client.Object) string {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return ""
	}
	return *pod.Spec.SchedulingGroup.PodGroupName
}

func activeGroups(obj client.Object) []string {
	if name := groupName(obj); name != "" && !hasEnded(obj) {
		return []string{name}
	}
	return nil
}

func groupOf(_ context.Context, obj client.Object) []reconcile.Request {
	name := groupName(obj)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

type reconciler struct{ client client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	group := &schedulingv1beta1.PodGroup{}
	if err := r.client.Get(ctx, req.NamespacedName, group); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isReleasable(group) {
		return ctrl.Result{}, nil
	}
	active := &corev1.PodList{}
	err := r.client.List(ctx, active, client.InNamespace(req.Namespace), client.MatchingFields{groupIndex: req.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || len(active.Items) > 0 {
		return ctrl.Result{}, err
	}
	controllerutil.RemoveFinalizer(group, finalizer)
	return ctrl.Result{}, owned.IgnoreStale(r.client.Update(ctx, group))
}
