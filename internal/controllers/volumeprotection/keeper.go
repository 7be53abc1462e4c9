// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumeprotection delays the deletion of PersistentVolumeClaims,
// PersistentVolumes and VolumeAttributesClasses while they are in use. Admission gives
// new objects a finalizer (StorageObjectInUseProtection); the controllers add it to
// older objects, and remove it from an object that is being deleted and not in use.
package volumeprotection

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// keeper protects the objects of one kind.
type keeper[T client.Object] struct {
	client    client.Client
	finalizer string
	newObject func() T
	// isUsed reports whether an object that is being deleted is in use.
	isUsed func(context.Context, T) (bool, error)
	// report, if set, is called for protected objects that are not being deleted.
	report func(context.Context, T) error
}

// Reconcile implements reconcile.Reconciler.
func (k *keeper[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := k.newObject()
	if err := k.client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if obj.GetDeletionTimestamp() == nil {
		return ctrl.Result{}, owned.IgnoreStale(k.protect(ctx, obj))
	}
	return ctrl.Result{}, owned.IgnoreStale(k.release(ctx, obj))
}

func (k *keeper[T]) protect(ctx context.Context, obj T) error {
	if controllerutil.ContainsFinalizer(obj, k.finalizer) {
		if k.report == nil {
			return nil
		}
		return k.report(ctx, obj)
	}
	obj = obj.DeepCopyObject().(T)
	controllerutil.AddFinalizer(obj, k.finalizer)
	return k.client.Update(ctx, obj)
}

func (k *keeper[T]) release(ctx context.Context, obj T) error {
	if !controllerutil.ContainsFinalizer(obj, k.finalizer) {
		return nil
	}
	if used, err := k.isUsed(ctx, obj); err != nil || used {
		return err
	}
	obj = obj.DeepCopyObject().(T)
	controllerutil.RemoveFinalizer(obj, k.finalizer)
	return k.client.Update(ctx, obj)
}
