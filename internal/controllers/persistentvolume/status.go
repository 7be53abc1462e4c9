// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// preResizeCapacity is the annotation of a volume with the capacity of its file system before an
// expansion that the node has yet to finish.
const preResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"

// unboundStatus returns the status of a claim without a volume.
func unboundStatus(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaimStatus {
	s := *claim.Status.DeepCopy()
	s.Phase = phase
	s.AccessModes, s.Capacity, s.CurrentVolumeAttributesClassName = nil, nil, nil
	return s
}

// boundStatus returns the status of a claim that is bound to a volume. The capacity is copied only once:
// later, an expansion reports it.
func boundStatus(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (corev1.PersistentVolumeClaimStatus, error) {
	s := *claim.Status.DeepCopy()
	s.Phase = corev1.ClaimBound
	s.AccessModes = v.Spec.AccessModes
	if claim.Status.Phase == corev1.ClaimBound {
		return s, nil
	}
	capacity, ok := v.Spec.Capacity[corev1.ResourceStorage]
	if !ok {
		return s, fmt.Errorf("PersistentVolume %q is without a storage capacity", v.Name)
	}
	current, reported := s.Capacity[corev1.ResourceStorage]
	before, err := resource.ParseQuantity(v.Annotations[preResizeCapacity])
	switch {
	case metav1.HasAnnotation(v.ObjectMeta, preResizeCapacity) && err == nil:
		s.Capacity = corev1.ResourceList{corev1.ResourceStorage: before}
	case !reported || capacity.Cmp(current) != 0:
		s.Capacity = v.Spec.Capacity
	}
	if claim.Status.Phase == corev1.ClaimPending {
		s.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	return s, nil
}

// bound returns a claim that is bound to a volume, and whether that changes it.
func bound(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, bool) {
	if claim.Spec.VolumeName == v.Name && metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) {
		return claim, false
	}
	claim = claim.DeepCopy()
	if claim.Spec.VolumeName != v.Name {
		claim.Spec.VolumeName = v.Name
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBoundByController, "yes")
	}
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBindCompleted, "yes")
	return claim, true
}
