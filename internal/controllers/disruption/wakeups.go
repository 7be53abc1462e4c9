// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// changesHealth passes the updates of pods after which a budget may have another status.
func changesHealth() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, okBefore := e.ObjectOld.(*corev1.Pod)
		after, okAfter := e.ObjectNew.(*corev1.Pod)
		return okBefore && okAfter && (pods.IsReady(before) != pods.IsReady(after) ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			controllerOf(before) != controllerOf(after) || !maps.Equal(before.Labels, after.Labels))
	}}
}

func controllerOf(pod *corev1.Pod) string {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return string(ref.UID)
	}
	return ""
}

// budgetsOf returns a request for each budget that selects a pod. The eviction API refuses to evict a
// pod with several budgets, so its event tells of the mistake.
func (r *reconciler) budgetsOf(ctx context.Context, pod client.Object) []reconcile.Request {
	found := &policyv1.PodDisruptionBudgetList{}
	if err := r.client.List(ctx, found, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the PodDisruptionBudgets of a pod", "pod", klog.KObj(pod))
		return nil
	}
	var out []reconcile.Request
	for i := range found.Items {
		selector, err := metav1.LabelSelectorAsSelector(found.Items[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.GetLabels())) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
		}
	}
	if len(out) > 1 {
		message := fmt.Sprintf("Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", pod.GetNamespace(), pod.GetName(), out[0].Name)
		r.events.Event(pod, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets", message)
	}
	return out
}
