// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

const (
	// ExpanderName is the identity of the expander.
	ExpanderName = "expand-controller"
	// ExpanderSource is the source of its events.
	ExpanderSource = "volume_expand"
)

// AddExpander registers the controller that tells the user of a claim which requests a larger volume that
// an external controller expands it: no volume that Kindred provides is expanded by the control plane.
func AddExpander(env control.Env) error {
	e := &expander{client: env.Client, events: env.Events}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(ExpanderName).
		WithOptions(env.Options(1)).
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: requestsMore})).
		Complete(e)
}

// requestsMore reports whether an update of a claim may require an expansion.
func requestsMore(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*corev1.PersistentVolumeClaim)
	claim, claimOK := e.ObjectNew.(*corev1.PersistentVolumeClaim)
	if !ok || !claimOK {
		return false
	}
	before, now := old.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return now.Cmp(before) > 0 || claim.Spec.VolumeName != old.Spec.VolumeName
}

type expander struct {
	client client.Client
	events record.EventRecorder
}

// Reconcile records an event if a bound claim requests more than its volume has.
func (e *expander) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim, v := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := e.client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return ctrl.Result{}, nil
	}
	if err := e.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, v, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if needsExpansion(claim, v) {
		e.events.Event(claim, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")
	}
	return ctrl.Result{}, nil
}

// needsExpansion reports whether a claim requests more than its volume has, or an expansion is under way.
func needsExpansion(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return false
	}
	requested, capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return requested.Cmp(capacity) > 0 || metav1.HasAnnotation(v.ObjectMeta, preResizeCapacity)
}
