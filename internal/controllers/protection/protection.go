// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection is what the controllers share that keep an object until nobody
// uses it any more. Admission gives new objects a finalizer; the controller gives it to
// those that were there before, and takes it away from an object that is being deleted
// as soon as it is free.
package protection

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kindred-project/kindred/internal/controllers/owned"
)

// Keeper protects the objects of one kind.
type Keeper[T client.Object] struct {
	Client    client.Client
	Finalizer string
	New       func() T
	// Used says whether somebody uses an object that is to be deleted.
	Used func(context.Context, T) (bool, error)
	// Living, if set, is called for objects that are not being deleted.
	Living func(context.Context, T) error
}

// Reconcile implements reconcile.Reconciler.
func (k *Keeper[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := k.New()
	if err := k.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if obj.GetDeletionTimestamp() == nil {
		return ctrl.Result{}, owned.IgnoreStale(k.protect(ctx, obj))
	}
	return ctrl.Result{}, owned.IgnoreStale(k.release(ctx, obj))
}

func (k *Keeper[T]) protect(ctx context.Context, obj T) error {
	if controllerutil.ContainsFinalizer(obj, k.Finalizer) {
		if k.Living == nil {
			return nil
		}
		return k.Living(ctx, obj)
	}
	obj = obj.DeepCopyObject().(T)
	controllerutil.AddFinalizer(obj, k.Finalizer)
	return k.Client.Update(ctx, obj)
}

func (k *Keeper[T]) release(ctx context.Context, obj T) error {
	if !controllerutil.ContainsFinalizer(obj, k.Finalizer) {
		return nil
	}
	if used, err := k.Used(ctx, obj); err != nil || used {
		return err
	}
	obj = obj.DeepCopyObject().(T)
	controllerutil.RemoveFinalizer(obj, k.Finalizer)
	return k.Client.Update(ctx, obj)
}
