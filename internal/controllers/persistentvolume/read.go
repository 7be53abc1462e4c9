// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// surroundings reads what the decision about a claim depends on.
func (b *binder) surroundings(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s surroundings, err error) {
	if claim.Spec.VolumeName != "" || metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) {
		s.named, err = b.volume(ctx, claim.Spec.VolumeName)
		return s, err
	}
	if s.volumes, err = b.allVolumes(ctx); err != nil {
		return s, err
	}
	classes := &storagev1.StorageClassList{}
	if err := b.client.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return s, err
	}
	s.classes = owned.Pointers(classes.Items)
	if isDelayed(s.class(volume.GetPersistentVolumeClaimClass(claim))) {
		s.waiting, err = b.waitingPods(ctx, claim)
	}
	return s, err
}

// volume returns a volume, or nil if it does not exist.
func (b *binder) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	v, key := &corev1.PersistentVolume{}, client.ObjectKey{Name: name}
	if err := b.client.Get(ctx, key, v, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			b.volumes.forget(key)
		}
		return nil, client.IgnoreNotFound(err)
	}
	return b.volumes.of(v), nil
}

func (b *binder) allVolumes(ctx context.Context) ([]*corev1.PersistentVolume, error) {
	list := &corev1.PersistentVolumeList{}
	if err := b.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	volumes := owned.Pointers(list.Items)
	for i := range volumes {
		volumes[i] = b.volumes.of(volumes[i])
	}
	return volumes, nil
}

// waitingPods returns the names of the pods that use a claim and have no node.
func (b *binder) waitingPods(ctx context.Context, claim *corev1.PersistentVolumeClaim) (names []string, err error) {
	users, err := pods.List(ctx, b.client, client.InNamespace(claim.Namespace),
		client.MatchingFields{pods.VolumeClaimIndex: claim.Name}, client.UnsafeDisableDeepCopy)
	for _, pod := range users {
		if pod.Spec.NodeName == "" && !pods.IsTerminal(pod) {
			names = append(names, pod.Name)
		}
	}
	return names, err
}

// claimOf returns the claim that a volume is bound to, or nil if that does not exist. Before a volume is
// released, the API is asked: the cache may lack a claim that was just created.
func (b *binder) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	key, ok := claimKey(v)
	if !ok || v.Spec.ClaimRef.UID == "" {
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := b.client.Get(ctx, key, claim, client.UnsafeDisableDeepCopy)
	if err == nil && claim.UID == v.Spec.ClaimRef.UID {
		return b.claims.of(claim), nil
	}
	if client.IgnoreNotFound(err) != nil || isReleased(v) {
		return nil, client.IgnoreNotFound(err)
	}
	claim = &corev1.PersistentVolumeClaim{}
	if err := b.live.Get(ctx, key, claim); err != nil || claim.UID != v.Spec.ClaimRef.UID {
		return nil, client.IgnoreNotFound(err)
	}
	return claim, nil
}
