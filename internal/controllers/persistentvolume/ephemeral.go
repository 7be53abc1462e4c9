// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/ephemeral"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

const (
	// EphemeralName is the identity of the controller of ephemeral volumes.
	EphemeralName = "ephemeral-volume-controller"
	// EphemeralSource is the source of its events.
	EphemeralSource = "ephemeral_volume"

	ephemeralWorkers = 5
)

// AddEphemeral registers the controller that creates the claims of pods' ephemeral volumes. It
// watches new pods, the end of their holds, and the deletion of claims.
func AddEphemeral(env control.Env) error {
	e := &ephemeralClaims{client: env.Client, events: env.Events}
	never := func(event.UpdateEvent) bool { return false }
	released := func(e event.UpdateEvent) bool { return ownership.IsHeld(e.ObjectOld) && !ownership.IsHeld(e.ObjectNew) }
	newPods := predicate.Funcs{UpdateFunc: released, DeleteFunc: func(event.DeleteEvent) bool { return false }}
	deletedClaims := predicate.Funcs{UpdateFunc: never, CreateFunc: func(event.CreateEvent) bool { return false }}
	pod := handler.EnqueueRequestForOwner(env.Manager.GetScheme(), env.Manager.GetRESTMapper(), &corev1.Pod{}, handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(EphemeralName).
		WithOptions(env.Options(ephemeralWorkers)).
		For(&corev1.Pod{}, builder.WithPredicates(newPods, predicate.NewPredicateFuncs(hasEphemeralVolume))).
		Watches(&corev1.PersistentVolumeClaim{}, pod, builder.WithPredicates(deletedClaims)).
		Complete(e)
}

func hasEphemeralVolume(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return false
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral != nil {
			return true
		}
	}
	return false
}

type ephemeralClaims struct {
	client client.Client
	events record.EventRecorder
}

// Reconcile creates the missing claims of a pod.
func (e *ephemeralClaims) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := e.client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil || ownership.IsHeld(pod) {
		return ctrl.Result{}, nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		if err := owned.IgnoreStale(e.ensure(ctx, pod, v)); err != nil {
			e.events.Event(pod, corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("ephemeral volume %s: %v", v.Name, err))
			return ctrl.Result{}, fmt.Errorf("pod %s, ephemeral volume %s: %w", req.NamespacedName, v.Name, err)
		}
	}
	return ctrl.Result{}, nil
}

// ensure creates the claim of an ephemeral volume. A claim of that name that is not the pod's is an
// error: it must not be used by accident.
func (e *ephemeralClaims) ensure(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := e.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v)}, claim, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		return ephemeral.VolumeIsForPod(pod, claim)
	case !apierrors.IsNotFound(err):
		return err
	}
	claim = newClaim(pod, v)
	if err := e.client.Create(ctx, claim); err != nil {
		return fmt.Errorf("create PVC %s: %w", claim.Name, err)
	}
	return nil
}

// newClaim returns the claim of an ephemeral volume. It is deleted with the pod.
func newClaim(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v),
			Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: template.Spec,
	}
}
