// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// surroundings holds the objects on which the decision about a claim depends.
type surroundings struct {
	// volumes has the volumes that the claim may be bound to.
	volumes []*corev1.PersistentVolume
	// named is the volume that the claim names; nil if that does not exist.
	named   *corev1.PersistentVolume
	classes []*storagev1.StorageClass
	// waiting has the names of the pods without a node that use the claim.
	waiting []string
}

// claimStep is the next step for a claim. At most one of its first three fields is set.
type claimStep struct {
	// bind is the volume to bind the claim to, or to complete a binding with.
	bind *corev1.PersistentVolume
	// class is the StorageClass that the claim gets, because it has none.
	class string
	// provisioner is the provisioner to request a volume from.
	provisioner string
	// phase, if set, is the claim's phase if it is not bound.
	phase corev1.PersistentVolumeClaimPhase
	event eventRecord
	// once limits the event to a change of the phase.
	once bool
}

// eventRecord is an event to record; none if the reason is "".
type eventRecord struct{ kind, reason, message string }

func normal(reason, message string) eventRecord {
	return eventRecord{corev1.EventTypeNormal, reason, message}
}
func warning(reason, message string) eventRecord {
	return eventRecord{corev1.EventTypeWarning, reason, message}
}

// decideClaim returns the next step for a claim.
func decideClaim(claim *corev1.PersistentVolumeClaim, s surroundings) (claimStep, error) {
	switch {
	case metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted):
		return decideBound(claim, s.named), nil
	case claim.Spec.VolumeName != "":
		return decideNamed(claim, s.named), nil
	}
	class := s.class(volume.GetPersistentVolumeClaimClass(claim))
	match, err := bestMatch(claim, s.volumes, isDelayed(class))
	if err != nil {
		return claimStep{}, fmt.Errorf("error finding PV for claim %q: %w", claim.Namespace+"/"+claim.Name, err)
	}
	if match != nil {
		return claimStep{bind: match}, nil
	}
	return decideUnmatched(claim, class, s), nil
}

// decideBound checks a binding that was complete once. A claim whose volume is gone is lost: it
// must not be bound to another volume without its data.
func decideBound(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) claimStep {
	lost := claimStep{phase: corev1.ClaimLost, once: true}
	switch {
	case claim.Spec.VolumeName == "":
		lost.event = warning("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case v == nil:
		lost.event = warning("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != claim.UID:
		lost.event = warning("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	default:
		return claimStep{bind: v}
	}
	return lost
}

// decideNamed decides about a claim that names its volume and is not bound yet.
func decideNamed(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) claimStep {
	pending := claimStep{phase: corev1.ClaimPending}
	switch {
	case v == nil:
	case isNamed(claim, v):
		return claimStep{bind: v}
	case v.Spec.ClaimRef != nil:
		pending.event = warning("FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", v.Name))
	default:
		err := mismatch(claim, v)
		if err == nil {
			return claimStep{bind: v}
		}
		pending.event = warning("VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, err))
	}
	return pending
}

// decideUnmatched decides about a claim that no volume fits. A nil class stands for one that is
// missing.
func decideUnmatched(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, s surroundings) claimStep {
	if !volume.PersistentVolumeClaimHasClass(claim) {
		if d := defaultClass(s.classes); d != nil {
			return claimStep{class: d.Name}
		}
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	pending := claimStep{phase: corev1.ClaimPending}
	switch {
	case isDelayed(class) && !volume.IsDelayBindingProvisioning(claim):
		pending.event = waits(s.waiting)
	case name == "":
		pending.event = normal("FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case class == nil:
		missing := errors.NewNotFound(storagev1.Resource("storageclass"), name)
		pending.event = warning("ProvisioningFailed", missing.Error())
	case strings.HasPrefix(class.Provisioner, "kubernetes.io/"):
		pending.event = warning("ProvisioningFailed", "no volume plugin matched name: "+class.Provisioner)
	default:
		pending.provisioner = class.Provisioner
		pending.event = normal("ExternalProvisioning", fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' "+
			"or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner))
	}
	return pending
}

// waits explains what a claim waits for whose volume the scheduler chooses.
func waits(pods []string) eventRecord {
	switch len(pods) {
	case 0:
		return normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		return normal("WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", pods[0]))
	}
	return normal("WaitForPodScheduled", fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(pods, ",")))
}

// class returns a StorageClass, or nil.
func (s surroundings) class(name string) *storagev1.StorageClass {
	for _, c := range s.classes {
		if c.Name == name {
			return c
		}
	}
	return nil
}
