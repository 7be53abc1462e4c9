// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vacprotection keeps a VolumeAttributesClass that is deleted as long as a
// volume has it, or a claim has it, wants it or is on its way to it.
package vacprotection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
const Name = "volumeattributesclass-protection-controller"

const finalizer = "kubernetes.io/vac-protection"

// Add registers the controller: woken by classes, and by volumes and claims that may
// have left one.
func Add(env control.Env) error {
	left := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(classes(e.ObjectOld), classes(e.ObjectNew)) },
	})
	wake := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) (out []reconcile.Request) {
		for _, class := range classes(obj) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: class}})
		}
		return out
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		For(&storagev1.VolumeAttributesClass{}).
		Watches(&corev1.PersistentVolume{}, wake, left).
		Watches(&corev1.PersistentVolumeClaim{}, wake, left).
		Complete(newKeeper(env))
}

// classes are those that a volume or a claim uses.
func classes(obj client.Object) []string {
	var names []string
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		names = []string{ptr.Deref(o.Spec.VolumeAttributesClassName, "")}
	case *corev1.PersistentVolumeClaim:
		names = []string{ptr.Deref(o.Spec.VolumeAttributesClassName, ""), ptr.Deref(o.Status.CurrentVolumeAttributesClassName, "")}
		if modify := o.Status.ModifyVolumeStatus; modify != nil {
			names = append(names, modify.TargetVolumeAttributesClassName)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func newKeeper(env control.Env) *protection.Keeper[*storagev1.VolumeAttributesClass] {
	return &protection.Keeper[*storagev1.VolumeAttributesClass]{
		Client: env.Client, Finalizer: finalizer,
		New: func() *storagev1.VolumeAttributesClass { return &storagev1.VolumeAttributesClass{} },
		Used: func(ctx context.Context, class *storagev1.VolumeAttributesClass) (bool, error) {
			return used(ctx, env.Client, class.Name)
		},
	}
}

// used looks through all volumes and claims: classes are deleted rarely.
func used(ctx context.Context, reader client.Reader, class string) (bool, error) {
	volumes, claims := &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, volumes, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range volumes.Items {
		if slices.Contains(classes(&volumes.Items[i]), class) {
			return true, nil
		}
	}
	if err := reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range claims.Items {
		if slices.Contains(classes(&claims.Items[i]), class) {
			return true, nil
		}
	}
	return false, nil
}
