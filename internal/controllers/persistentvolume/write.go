// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/storage/volume"
)

// reserve writes the claimRef of a volume, the first of the four writes of a binding.
func (b *binder) reserve(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	v, changed, err := volume.GetBindVolumeToClaim(v, claim)
	if err != nil || !changed {
		return v, err
	}
	return v, b.updateVolume(ctx, v)
}

// bind makes the other three writes of a binding, as far as they are missing.
func (b *binder) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	v, err := b.setPhase(ctx, v, corev1.VolumeBound, "")
	if err != nil {
		return err
	}
	claim, changed := bound(claim, v)
	if changed {
		if err := b.updateClaim(ctx, claim); err != nil {
			return err
		}
	}
	status, err := boundStatus(claim, v)
	if err != nil {
		return err
	}
	_, err = b.setStatus(ctx, claim, status)
	return err
}

// requestVolume requests a volume for a claim from a provisioner, by the claim's annotations.
func (b *binder) requestVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim, step claimStep) error {
	if claim.Annotations[volume.AnnStorageProvisioner] != step.provisioner {
		claim = claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBetaStorageProvisioner, step.provisioner)
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnStorageProvisioner, step.provisioner)
		if err := b.updateClaim(ctx, claim); err != nil {
			return err
		}
	}
	b.record(claim, step.event)
	return nil
}

// reportUnbound writes the status of a claim that is not bound, and records why.
func (b *binder) reportUnbound(ctx context.Context, claim *corev1.PersistentVolumeClaim, step claimStep) error {
	changed, err := b.setStatus(ctx, claim, unboundStatus(claim, step.phase))
	if err == nil && (changed || !step.once) {
		b.record(claim, step.event)
	}
	return err
}

func (b *binder) record(about runtime.Object, e eventRecord) {
	if e.reason != "" {
		b.events.Event(about, e.kind, e.reason, e.message)
	}
}

// setPhase returns a volume with a phase, which it writes if it differs.
func (b *binder) setPhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	v = v.DeepCopy()
	v.Status.Phase, v.Status.Message = phase, message
	if err := b.client.Status().Update(ctx, v); err != nil {
		return nil, err
	}
	b.volumes.wrote(v)
	return v, nil
}

// setStatus writes the status of a claim if it differs.
func (b *binder) setStatus(ctx context.Context, claim *corev1.PersistentVolumeClaim, status corev1.PersistentVolumeClaimStatus) (changed bool, err error) {
	if apiequality.Semantic.DeepEqual(claim.Status, status) {
		return false, nil
	}
	claim = claim.DeepCopy()
	claim.Status = status
	if err := b.client.Status().Update(ctx, claim); err != nil {
		return false, err
	}
	b.claims.wrote(claim)
	return true, nil
}

// updateVolume writes a volume, which then has the new resource version.
func (b *binder) updateVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	if err := b.client.Update(ctx, v); err != nil {
		return err
	}
	b.volumes.wrote(v)
	return nil
}

// updateClaim writes a claim, which then has the new resource version.
func (b *binder) updateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if err := b.client.Update(ctx, claim); err != nil {
		return err
	}
	b.claims.wrote(claim)
	return nil
}
