// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// volumeStep is the next step for a volume.
type volumeStep struct {
	// unbind removes the binding to a claim that is bound to another volume.
	unbind bool
	// phase, if set, is the volume's phase.
	phase   corev1.PersistentVolumePhase
	message string
	// event is recorded when the phase changes, mismatch for the volume and the claim each time.
	event                         eventRecord
	volumeMismatch, claimMismatch eventRecord
}

// decideVolume returns the next step for a volume. claim is the claim that it names, with the UID of
// its claimRef; nil if that does not exist.
func decideVolume(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) volumeStep {
	switch {
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "":
		return volumeStep{phase: corev1.VolumeAvailable}
	case claim == nil:
		return release(v)
	case claim.Spec.VolumeName == v.Name:
		return volumeStep{phase: corev1.VolumeBound}
	case claim.Spec.VolumeName != "":
		return decideMisbound(v)
	case volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return volumeStep{
			volumeMismatch: warning("VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name)),
			claimMismatch:  warning("VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name)),
		}
	}
	return volumeStep{} // The claim's own step completes the binding.
}

// isReleased reports whether a volume has the phase Released, or Failed, which follows it.
func isReleased(v *corev1.PersistentVolume) bool {
	return v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed
}

// decideMisbound decides about a volume whose claim is bound to another one. If it was provisioned for
// this claim, no other claim needs it.
func decideMisbound(v *corev1.PersistentVolume) volumeStep {
	if metav1.HasAnnotation(v.ObjectMeta, volume.AnnDynamicallyProvisioned) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return release(v)
	}
	return volumeStep{unbind: true}
}

// release returns the step for a volume whose claim is gone. Its phase tells an external provisioner to
// delete it. A volume that failed stays so.
func release(v *corev1.PersistentVolume) volumeStep {
	if !isReleased(v) {
		return volumeStep{phase: corev1.VolumeReleased}
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return volumeStep{}
	case corev1.PersistentVolumeReclaimRecycle:
		return fail(warning("VolumeFailedRecycle", "No recycler plugin found for the volume!"), "")
	case corev1.PersistentVolumeReclaimDelete:
		if hasExternalDeleter(v) {
			return volumeStep{}
		}
		message := fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name)
		return fail(warning("VolumeFailedDelete", message), message)
	}
	return fail(warning("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"), "")
}

func fail(because eventRecord, message string) volumeStep {
	return volumeStep{phase: corev1.VolumeFailed, message: message, event: because}
}

// hasExternalDeleter reports whether the provisioner of a volume deletes it. Volumes of CSI drivers
// are deleted by a sidecar of the driver, even if they were not provisioned by it.
func hasExternalDeleter(v *corev1.PersistentVolume) bool {
	provisioner := v.Annotations[volume.AnnDynamicallyProvisioned]
	if provisioner != "" {
		return !strings.HasPrefix(provisioner, "kubernetes.io/")
	}
	return v.Spec.CSI != nil || metav1.HasAnnotation(v.ObjectMeta, volume.AnnMigratedTo)
}

// unbound returns a volume without its binding. A claimRef that a user wrote stays, without the UID.
func unbound(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	v = v.DeepCopy()
	if !metav1.HasAnnotation(v.ObjectMeta, volume.AnnBoundByController) {
		v.Spec.ClaimRef.UID = ""
		return v
	}
	v.Spec.ClaimRef = nil
	delete(v.Annotations, volume.AnnBoundByController)
	return v
}
