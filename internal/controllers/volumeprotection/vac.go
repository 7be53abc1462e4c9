// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeprotection

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

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// ClassName is the identity of the VolumeAttributesClass controller.
const ClassName = "volumeattributesclass-protection-controller"

const classFinalizer = "kubernetes.io/vac-protection"

// AddClasses registers the controller that protects a VolumeAttributesClass while a volume
// has it, or while a claim has it, requests it or is being modified to it. It watches
// classes, and volumes and claims that stop using one.
func AddClasses(env control.Env) error {
	released := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(classesOf(e.ObjectOld), classesOf(e.ObjectNew)) },
	})
	toClasses := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) (out []reconcile.Request) {
		for _, class := range classesOf(obj) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: class}})
		}
		return out
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(ClassName).
		WithOptions(env.Options(1)).
		For(&storagev1.VolumeAttributesClass{}).
		Watches(&corev1.PersistentVolume{}, toClasses, released).
		Watches(&corev1.PersistentVolumeClaim{}, toClasses, released).
		Complete(newClassProtector(env))
}

// classesOf returns the names of the classes that a volume or a claim uses.
func classesOf(obj client.Object) []string {
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

func newClassProtector(env control.Env) *protector[*storagev1.VolumeAttributesClass] {
	return &protector[*storagev1.VolumeAttributesClass]{
		client: env.Client, finalizer: classFinalizer,
		newObject: func() *storagev1.VolumeAttributesClass { return &storagev1.VolumeAttributesClass{} },
		isUsed: func(ctx context.Context, class *storagev1.VolumeAttributesClass) (bool, error) {
			return isClassUsed(ctx, env.Client, class.Name)
		},
	}
}

// isClassUsed reports whether a volume or a claim uses the class. It needs no index, since
// classes are rarely deleted.
func isClassUsed(ctx context.Context, reader client.Reader, class string) (bool, error) {
	volumes, claims := &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, volumes, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range volumes.Items {
		if slices.Contains(classesOf(&volumes.Items[i]), class) {
			return true, nil
		}
	}
	if err := reader.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range claims.Items {
		if slices.Contains(classesOf(&claims.Items[i]), class) {
			return true, nil
		}
	}
	return false, nil
}
