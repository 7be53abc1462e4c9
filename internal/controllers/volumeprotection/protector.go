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

// protector protects the objects of one kind.
type protector[T client.Object] struct {
	client    client.Client
	finalizer string
	newObject func() T
	// isUsed reports whether an object that is being deleted is in use.
	isUsed func(context.Context, T) (bool, error)
	// report, if set, is called for protected objects that are not being deleted.
	report func(context.Context, T) error
}

// Reconcile implements reconcile.Reconciler.
func (p *protector[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := p.newObject()
	if err := p.client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if obj.GetDeletionTimestamp() == nil {
		return ctrl.Result{}, owned.IgnoreStale(p.protect(ctx, obj))
	}
	return ctrl.Result{}, owned.IgnoreStale(p.release(ctx, obj))
}

func (p *protector[T]) protect(ctx context.Context, obj T) error {
	if controllerutil.ContainsFinalizer(obj, p.finalizer) {
		if p.report == nil {
			return nil
		}
		return p.report(ctx, obj)
	}
	obj = obj.DeepCopyObject().(T)
	controllerutil.AddFinalizer(obj, p.finalizer)
	return p.client.Update(ctx, obj)
}

func (p *protector[T]) release(ctx context.Context, obj T) error {
	if !controllerutil.ContainsFinalizer(obj, p.finalizer) {
		return nil
	}
	if used, err := p.isUsed(ctx, obj); err != nil || used {
		return err
	}
	obj = obj.DeepCopyObject().(T)
	controllerutil.RemoveFinalizer(obj, p.finalizer)
	return p.client.Update(ctx, obj)
}
