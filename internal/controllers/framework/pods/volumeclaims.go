// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// VolumeClaimIndex finds pods by the names of the PersistentVolumeClaims of their volumes.
const VolumeClaimIndex = ".spec.volumes.claim"

// IndexVolumeClaims adds VolumeClaimIndex to the shared cache, unless another controller has added it.
func IndexVolumeClaims(ctx context.Context, shared cache.Cache) error {
	_, err := owned.EnsureIndex(ctx, shared, &corev1.Pod{}, VolumeClaimIndex, VolumeClaims)
	return err
}

// VolumeClaims returns the names of the PersistentVolumeClaims of a pod's volumes, including its
// ephemeral volumes. It is the index function of VolumeClaimIndex.
func VolumeClaims(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	var names []string
	for i := range pod.Spec.Volumes {
		if name := claimOf(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func claimOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, volume)
	}
	return ""
}
