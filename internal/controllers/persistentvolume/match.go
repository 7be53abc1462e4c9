// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// bestMatch returns the volume to bind a claim to, or nil. A volume with fewer access modes is
// preferred, since one with more may be needed by another claim; then the smallest. If the
// scheduler chooses the claim's volume (delayed), only a volume that names the claim is returned. A held
// volume is returned only if it names the claim, which then has to wait for it.
func bestMatch(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delayed bool) (*corev1.PersistentVolume, error) {
	byModes := map[int][]*corev1.PersistentVolume{}
	for _, v := range volumes {
		if volume.CheckAccessModes(claim, v) && (!ownership.IsHeld(v) || isNamed(claim, v)) {
			byModes[len(v.Spec.AccessModes)] = append(byModes[len(v.Spec.AccessModes)], v)
		}
	}
	for _, modes := range slices.Sorted(maps.Keys(byModes)) {
		match, err := volume.FindMatchingVolume(claim, byModes[modes], nil, nil, delayed, true)
		if err != nil || match != nil {
			return match, err
		}
	}
	return nil, nil
}

// mismatch explains why a claim cannot be bound to the volume that it names. It returns nil if it
// can.
func mismatch(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	requested, capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", v.Name)
	case capacity.Cmp(requested) < 0:
		return errors.New("requested PV is too small")
	case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(claim):
		return errors.New("storageClassName does not match")
	case ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != ptr.Deref(v.Spec.VolumeAttributesClassName, ""):
		return errors.New("volumeAttributesClassName does not match")
	case volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return errors.New("incompatible volumeMode")
	case !volume.CheckAccessModes(claim, v):
		return errors.New("incompatible accessMode")
	}
	return nil
}

// isNamed reports whether the claimRef of a volume names a claim. A claimRef with a UID names only
// the claim with that UID.
func isNamed(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	return volume.IsVolumeBoundToClaim(v, claim)
}

// claimKey returns the claim that a volume names.
func claimKey(v *corev1.PersistentVolume) (types.NamespacedName, bool) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, true
}

// isDelayed reports whether a claim waits for the scheduler. A nil class stands for one that is missing.
func isDelayed(class *storagev1.StorageClass) bool {
	return class != nil && ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}

const (
	isDefaultClass     = "storageclass.kubernetes.io/is-default-class"
	isDefaultClassBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

// defaultClass returns the default StorageClass, or nil. Of several, it is the newest; of these,
// the first by name.
func defaultClass(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	defaults := slices.DeleteFunc(slices.Clone(classes), func(c *storagev1.StorageClass) bool {
		return c.Annotations[isDefaultClass] != "true" && c.Annotations[isDefaultClassBeta] != "true"
	})
	if len(defaults) == 0 {
		return nil
	}
	return slices.MinFunc(defaults, func(a, b *storagev1.StorageClass) int {
		if order := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}
