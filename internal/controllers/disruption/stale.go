// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// staleAfter is the time after which the condition DisruptionTarget of a pod that was not deleted is
// stale.
const staleAfter = 2 * time.Minute

// addStale registers the queue that resets the condition DisruptionTarget of pods that were not
// deleted: a Job must not take a later failure of the pod for a disruption (KEP-3329).
func addStale(env control.Env) error {
	isTarget := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && mayBeStale(pod) != nil
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name+"-pods").
		WithOptions(env.Options(1)).
		For(&corev1.Pod{}, builder.WithPredicates(isTarget)).
		Complete(&resetter{client: env.Client, clock: env.Clock})
}

type resetter struct {
	client client.Client
	clock  clock.PassiveClock
}

// Reconcile resets the condition of one pod, or requeues the pod for the time when it is stale.
func (r *resetter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	target := mayBeStale(pod)
	if target == nil {
		return ctrl.Result{}, nil
	}
	if left := target.LastTransitionTime.Add(staleAfter).Sub(r.clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	*target = corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}
	return ctrl.Result{}, owned.IgnoreStale(r.client.Status().Update(ctx, pod))
}

// mayBeStale returns the condition DisruptionTarget of a pod that runs on, or nil. The node agent
// sets the condition itself when it stops a pod, which is deleted later or never. A pod on hold is
// left alone.
func mayBeStale(pod *corev1.Pod) *corev1.PodCondition {
	c := pods.Condition(pod, corev1.DisruptionTarget)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason == corev1.PodReasonTerminationByKubelet ||
		pod.DeletionTimestamp != nil || pods.IsTerminal(pod) || ownership.IsHeld(pod) {
		return nil
	}
	return c
}
