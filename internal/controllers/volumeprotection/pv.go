// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// VolumeName is the identity of the PersistentVolume controller.
const VolumeName = "pv-protection-controller"

const volumeFinalizer = "kubernetes.io/pv-protection"

// AddVolumes registers the controller that protects a PersistentVolume while it is bound to
// a claim that exists. It watches volumes and the deletion of claims.
//
// Upstream checks only the phase, which its binder sets to Released after the claim is
// deleted. Kindred has no binder yet, so the phase may stay Bound.
func AddVolumes(env control.Env) error {
	volumeOf := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		if !ok || claim.Spec.VolumeName == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: claim.Spec.VolumeName}}}
	})
	deletions := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(VolumeName).
		WithOptions(env.Options(1)).
		For(&corev1.PersistentVolume{}).
		Watches(&corev1.PersistentVolumeClaim{}, volumeOf, builder.WithPredicates(deletions)).
		// The controller's role, which is upstream's, may not read claims.
		Complete(newVolumeProtector(env, env.Manager.GetAPIReader()))
}

func newVolumeProtector(env control.Env, live client.Reader) *protector[*corev1.PersistentVolume] {
	return &protector[*corev1.PersistentVolume]{
		client: env.Client, finalizer: volumeFinalizer,
		newObject: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		isUsed: func(ctx context.Context, v *corev1.PersistentVolume) (bool, error) {
			if v.Status.Phase != corev1.VolumeBound || v.Spec.ClaimRef == nil {
				return false, nil
			}
			if exists, err := claimExists(ctx, env.Client, v.Spec.ClaimRef); err != nil || exists {
				return exists, err
			}
			// The cache may lack a new claim.
			return claimExists(ctx, live, v.Spec.ClaimRef)
		},
	}
}

// claimExists reports whether the claim that a volume names exists; a claim of that name
// with another UID does not count. It lists because the API reader may not get claims.
func claimExists(ctx context.Context, reader client.Reader, ref *corev1.ObjectReference) (bool, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, list, client.InNamespace(ref.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool {
		return c.Name == ref.Name && (ref.UID == "" || c.UID == ref.UID)
	}), nil
}
