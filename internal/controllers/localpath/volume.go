// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/localvolumes"
)

// finalizer keeps a volume until its directory is removed. It is the one of all external provisioners.
const finalizer = volume.PVDeletionProtectionFinalizer

// finalizers returns the finalizers of a volume: its reclaim policy may change.
func finalizers(v *corev1.PersistentVolume) []string {
	v = &corev1.PersistentVolume{ObjectMeta: *v.ObjectMeta.DeepCopy(), Spec: v.Spec}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		controllerutil.AddFinalizer(v, finalizer)
	} else {
		controllerutil.RemoveFinalizer(v, finalizer)
	}
	return v.Finalizers
}

// reconcileVolume takes the next step for a volume of the provisioner.
func (p *provisioner) reconcileVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	if !serves(v) || ownership.IsHeld(v) {
		return nil
	}
	if want := finalizers(v); v.DeletionTimestamp == nil && !slices.Equal(v.Finalizers, want) {
		v.Finalizers = want
		return p.client.Update(ctx, v)
	}
	if shouldDelete(v) {
		return p.remove(ctx, v)
	}
	return p.expand(ctx, v)
}

// shouldDelete reports whether the directory of a volume is to be removed. A volume that failed is tried
// again.
func shouldDelete(v *corev1.PersistentVolume) bool {
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return false
	}
	if v.DeletionTimestamp != nil && !slices.Contains(v.Finalizers, finalizer) {
		return false // The directory is removed.
	}
	return v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed ||
		v.DeletionTimestamp != nil && v.Status.Phase != corev1.VolumeBound && v.Spec.ClaimRef == nil
}

// serves reports whether the provisioner has made the volume.
func serves(v *corev1.PersistentVolume) bool {
	return isSimulated(v) || v.Annotations[nodeAnnotation] != ""
}

func isSimulated(v *corev1.PersistentVolume) bool {
	return v.Spec.Local != nil && v.Spec.Local.Path == simulatedPath(v.Name)
}

// remove deletes a volume, then removes its directory, then the finalizer that keeps the volume until then.
// The deletion comes first because it fails if the volume was bound again in the meantime, as an undeletion of its
// claim does; afterwards the volume cannot be bound.
func (p *provisioner) remove(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.DeletionTimestamp == nil {
		return p.client.Delete(ctx, v, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion})
	}
	if !isSimulated(v) {
		if err := p.diskOf(v.Annotations[nodeAnnotation]).Remove(ctx, localvolumes.Of(v)); err != nil {
			p.events.Event(v, corev1.EventTypeWarning, "VolumeFailedDelete", err.Error())
			return err
		}
	}
	controllerutil.RemoveFinalizer(v, finalizer)
	return p.client.Update(ctx, v)
}

// expand gives a bound volume the size that its claim requests, and reports it in the claim.
func (p *provisioner) expand(ctx context.Context, v *corev1.PersistentVolume) error {
	claim, err := p.claimOf(ctx, v)
	if claim == nil || err != nil || ownership.IsHeld(claim) {
		return err
	}
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if capacity := v.Spec.Capacity[corev1.ResourceStorage]; requested.Cmp(capacity) > 0 {
		if !isSimulated(v) {
			larger := localvolumes.Of(v)
			larger.Size = requested.Value()
			if err := p.diskOf(v.Annotations[nodeAnnotation]).Expand(ctx, larger); err != nil {
				p.events.Event(claim, corev1.EventTypeWarning, "VolumeResizeFailed", err.Error())
				return err
			}
		}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: requested}
		if err := p.client.Update(ctx, v); err != nil {
			return err
		}
	}
	capacity := v.Spec.Capacity[corev1.ResourceStorage]
	if reported := claim.Status.Capacity[corev1.ResourceStorage]; capacity.Cmp(reported) <= 0 {
		return nil
	}
	claim.Status.Capacity = v.Spec.Capacity
	if err := p.client.Status().Update(ctx, claim); err != nil {
		return err
	}
	p.events.Event(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	return nil
}

// claimOf returns the claim that a volume is bound to, or nil.
func (p *provisioner) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil || v.Status.Phase != corev1.VolumeBound {
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := p.client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, claim)
	if apierrors.IsNotFound(err) || err == nil && (claim.UID != ref.UID || claim.Status.Phase != corev1.ClaimBound) {
		return nil, nil
	}
	return claim, err
}
