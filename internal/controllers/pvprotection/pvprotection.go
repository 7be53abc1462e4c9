// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pvprotection keeps a PersistentVolume that is deleted as long as it is bound
// to a claim that there is. Upstream goes by the phase alone, which its binder changes
// to Released when the claim goes; here nobody binds volumes yet, so that the phase may
// say Bound long after.
package pvprotection

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

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/protection"
)

// Name is the controller's identity.
const Name = "pv-protection-controller"

const finalizer = "kubernetes.io/pv-protection"

// Add registers the controller: woken by volumes, and by claims of theirs that go.
func Add(env control.Env) error {
	volume := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		if !ok || claim.Spec.VolumeName == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: claim.Spec.VolumeName}}}
	})
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		For(&corev1.PersistentVolume{}).
		Watches(&corev1.PersistentVolumeClaim{}, volume, builder.WithPredicates(gone)).
		// The controller's own role, which is upstream's, does not let it see claims.
		Complete(newKeeper(env, env.Manager.GetAPIReader()))
}

func newKeeper(env control.Env, live client.Reader) *protection.Keeper[*corev1.PersistentVolume] {
	return &protection.Keeper[*corev1.PersistentVolume]{
		Client: env.Client, Finalizer: finalizer,
		New: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		Used: func(ctx context.Context, v *corev1.PersistentVolume) (bool, error) {
			if v.Status.Phase != corev1.VolumeBound || v.Spec.ClaimRef == nil {
				return false, nil
			}
			if known, err := claimed(ctx, env.Client, v.Spec.ClaimRef); err != nil || known {
				return known, err
			}
			// Of a claim that is new, the cache may not know.
			return claimed(ctx, live, v.Spec.ClaimRef)
		},
	}
}

// claimed says whether there is the claim that a volume names; another of its name does
// not count. It lists, since that is what the reader of the API may do.
func claimed(ctx context.Context, reader client.Reader, ref *corev1.ObjectReference) (bool, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, list, client.InNamespace(ref.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool {
		return c.Name == ref.Name && (ref.UID == "" || c.UID == ref.UID)
	}), nil
}
