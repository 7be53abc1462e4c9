// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
)

// claimProtection is the finalizer that keeps a claim as long as pods use it.
const claimProtection = "kubernetes.io/pvc-protection"

// gidAnnotation names a group of the files of a persistent volume. All containers get it.
const gidAnnotation = "pv.beta.kubernetes.io/gid"

// bound is a claim of a pod and the persistent volume that it is bound to.
type bound struct {
	claim    *v1.PersistentVolumeClaim
	pv       *v1.PersistentVolume
	readOnly bool
}

func (b bound) isBlock() bool {
	return b.pv.Spec.VolumeMode != nil && *b.pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// claimOf returns the name of the claim that a volume refers to; "" if it refers to none.
func claimOf(pod *v1.Pod, spec *v1.Volume) string {
	switch {
	case spec.PersistentVolumeClaim != nil:
		return spec.PersistentVolumeClaim.ClaimName
	case spec.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, spec)
	}
	return ""
}

// resolve reads the claim of a volume and its persistent volume. The node may get both, but may not watch
// them (node authorizer), so that they are read each time.
func (m *Manager) resolve(ctx context.Context, pod *v1.Pod, spec *v1.Volume) (bound, error) {
	name := claimOf(pod, spec)
	processing := func(err error) error {
		return unresolved{fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)}
	}
	claim, err := m.options.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return bound{}, processing(fmt.Errorf("failed to fetch PVC from API server: %w", err))
	}
	if err := checkClaim(claim); err != nil {
		return bound{}, processing(err)
	}
	if spec.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return bound{}, unresolved{err}
		}
	}
	pv, err := m.options.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return bound{}, processing(fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err))
	}
	if err := checkBinding(pv, claim.UID); err != nil {
		return bound{}, processing(err)
	}
	b := bound{claim: claim, pv: pv}
	b.readOnly = spec.PersistentVolumeClaim != nil && spec.PersistentVolumeClaim.ReadOnly
	return b, checkMode(pod, spec.Name, b.isBlock())
}

// checkClaim returns why a pod cannot use the claim now. A claim that is being deleted stays usable while its
// finalizer keeps it, because the pod may have run before.
func checkClaim(claim *v1.PersistentVolumeClaim) error {
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, claimProtection):
		return errors.New("PVC is being deleted")
	case claim.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case claim.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// checkBinding returns an error if the persistent volume is not bound to the claim.
func checkBinding(pv *v1.PersistentVolume, claim types.UID) error {
	switch {
	case pv.Spec.ClaimRef == nil:
		return fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case pv.Spec.ClaimRef.UID != claim:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name, pv.Spec.ClaimRef.UID, claim)
	}
	return nil
}

// checkMode returns an error if containers use a block volume as a file system, or the reverse.
func checkMode(pod *v1.Pod, volume string, block bool) error {
	mounted, mapped := used(pod)
	switch {
	case block && mounted[volume]:
		return unresolved{fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", volume, v1.PersistentVolumeBlock)}
	case !block && mapped[volume]:
		return unresolved{fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", volume, v1.PersistentVolumeFilesystem)}
	}
	return nil
}

// Groups implements pod.Volumes.
func (m *Manager) Groups(pod *v1.Pod) []int64 {
	var own []int64
	if pod.Spec.SecurityContext != nil {
		own = pod.Spec.SecurityContext.SupplementalGroups
	}
	var groups []int64
	for _, b := range m.state(pod.UID).allBound() {
		group, err := strconv.ParseInt(b.pv.Annotations[gidAnnotation], 10, 64)
		if err == nil && !slices.Contains(own, group) {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}
