// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	// VolumeNameIndex finds claims by the volume that they name; "" are those that name none.
	VolumeNameIndex = ".spec.volumeName"
	// ClaimRefIndex finds volumes by the claim that they name, as "namespace/name".
	ClaimRefIndex = ".spec.claimRef"
)

// VolumeNameOf is the index function of VolumeNameIndex.
func VolumeNameOf(obj client.Object) []string {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	return []string{claim.Spec.VolumeName}
}

// ClaimRefOf is the index function of ClaimRefIndex.
func ClaimRefOf(obj client.Object) []string {
	v, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return nil
	}
	key, ok := claimKey(v)
	if !ok {
		return nil
	}
	return []string{key.String()}
}

// watch registers the binder's watches: claims and volumes, StorageClasses for claims that wait for one,
// and new pods, which the events of a waiting claim name.
func (b *binder) watch(env control.Env) error {
	ctx := context.Background()
	indexer := env.Manager.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &corev1.PersistentVolumeClaim{}, VolumeNameIndex, VolumeNameOf); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &corev1.PersistentVolume{}, ClaimRefIndex, ClaimRefOf); err != nil {
		return err
	}
	if err := pods.IndexVolumeClaims(ctx, env.Manager.GetCache()); err != nil {
		return err
	}
	created := predicate.Funcs{
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(BinderName).
		WithOptions(env.Options(binderWorkers)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(b.requestsOfClaim)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(b.requestsOfVolume)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(b.requestsOfClass)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(requestsOfPod), builder.WithPredicates(created)).
		Complete(b)
}

// requestsOfClaim returns the requests for a claim, the volume that it names, and those that name it.
func (b *binder) requestsOfClaim(ctx context.Context, obj client.Object) []reconcile.Request {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	requests := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(claim)}}
	if claim.Spec.VolumeName != "" {
		requests = append(requests, requestForVolume(claim.Spec.VolumeName))
	}
	list := &corev1.PersistentVolumeList{}
	naming := client.MatchingFields{ClaimRefIndex: client.ObjectKeyFromObject(claim).String()}
	if err := b.client.List(ctx, list, naming, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the volumes of a claim", "PVC", klog.KObj(claim))
	}
	for i := range list.Items {
		requests = append(requests, requestForVolume(list.Items[i].Name))
	}
	return requests
}

// requestsOfVolume returns the requests for a volume and for the claims that may be bound to it.
func (b *binder) requestsOfVolume(ctx context.Context, obj client.Object) []reconcile.Request {
	v, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return nil
	}
	requests := []reconcile.Request{requestForVolume(v.Name)}
	key, isNamed := claimKey(v)
	if isNamed {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	named := b.claimsNaming(ctx, v.Name)
	if !isNamed && v.Status.Phase == corev1.VolumeAvailable {
		named = append(named, b.claimsMatching(ctx, v)...)
	}
	return append(requests, named...)
}

func (b *binder) claimsMatching(ctx context.Context, v *corev1.PersistentVolume) []reconcile.Request {
	return b.requestsForClaims(ctx, "", func(claim *corev1.PersistentVolumeClaim) bool {
		match, err := bestMatch(claim, []*corev1.PersistentVolume{v}, false)
		return err == nil && match != nil
	})
}

func (b *binder) claimsNaming(ctx context.Context, name string) []reconcile.Request {
	return b.requestsForClaims(ctx, name, func(*corev1.PersistentVolumeClaim) bool { return true })
}

// requestsOfClass returns the requests for the claims that wait for a StorageClass.
func (b *binder) requestsOfClass(ctx context.Context, class client.Object) []reconcile.Request {
	return b.requestsForClaims(ctx, "", func(claim *corev1.PersistentVolumeClaim) bool {
		return !volume.PersistentVolumeClaimHasClass(claim) || volume.GetPersistentVolumeClaimClass(claim) == class.GetName()
	})
}

// requestsForClaims returns requests for claims that name a volume, or none ("").
func (b *binder) requestsForClaims(ctx context.Context, volumeName string, keep func(*corev1.PersistentVolumeClaim) bool) (requests []reconcile.Request) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := b.client.List(ctx, list, client.MatchingFields{VolumeNameIndex: volumeName}, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the claims of a volume", "volume", volumeName)
	}
	for _, claim := range owned.Pointers(list.Items) {
		if keep(claim) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return requests
}

// requestsOfPod returns requests for the claims of a pod without a node.
func requestsOfPod(_ context.Context, obj client.Object) (requests []reconcile.Request) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != "" {
		return nil
	}
	for _, name := range pods.VolumeClaims(pod) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: name}})
	}
	return requests
}

func requestForVolume(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
