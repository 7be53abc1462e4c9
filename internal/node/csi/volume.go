// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"crypto/sha256"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// pluginName begins the unique names of volumes of CSI drivers.
const pluginName = "kubernetes.io/csi"

// Volume is a volume of a pod: a persistent volume, or one that is declared in the pod.
type Volume struct {
	Pod *v1.Pod
	// Name is the persistent volume's, or the volume's in the pod.
	Name string
	// PV is the persistent volume, and ReadOnly whether the pod's claim is read-only. Inline is what the
	// pod declares. One of the two is set.
	PV       *v1.PersistentVolume
	ReadOnly bool
	Inline   *v1.CSIVolumeSource
}

// Driver returns the name of the volume's driver.
func (v *Volume) Driver() string {
	if v.Inline != nil {
		return v.Inline.Driver
	}
	return v.PV.Spec.CSI.Driver
}

// Handle returns the driver's ID of the volume.
func (v *Volume) Handle() string {
	if v.Inline != nil {
		return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(v.Pod.UID)+v.Name)))
	}
	return v.PV.Spec.CSI.VolumeHandle
}

// AttachmentName is the name that all components compute for a volume's VolumeAttachment.
func (v *Volume) AttachmentName(node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(v.Handle()+v.Driver()+node)))
}

// key identifies the volume on the node. It is the name of the lock under which the volume changes.
func (v *Volume) key() string { return keyOf(v.Driver(), v.Handle()) }

func keyOf(driver, handle string) string { return driver + "^" + handle }

// uniqueName is the volume's name in the Node's status.
func uniqueName(key string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(pluginName + "/" + key)
}

func (v *Volume) lifecycle() storagev1.VolumeLifecycleMode {
	if v.Inline != nil {
		return storagev1.VolumeLifecycleEphemeral
	}
	return storagev1.VolumeLifecyclePersistent
}

// IsReadOnly reports whether the pod may only read the volume.
func (v *Volume) IsReadOnly() bool {
	return v.ReadOnly || v.Inline != nil && v.Inline.ReadOnly != nil && *v.Inline.ReadOnly
}

func (v *Volume) isBlock() bool {
	return v.PV != nil && v.PV.Spec.VolumeMode != nil && *v.PV.Spec.VolumeMode == v1.PersistentVolumeBlock
}

func (v *Volume) fsType() string {
	switch {
	case v.Inline == nil:
		return v.PV.Spec.CSI.FSType
	case v.Inline.FSType != nil:
		return *v.Inline.FSType
	}
	return ""
}

func (v *Volume) attributes() map[string]string {
	if v.Inline != nil {
		return v.Inline.VolumeAttributes
	}
	return v.PV.Spec.CSI.VolumeAttributes
}

func (v *Volume) accessMode() v1.PersistentVolumeAccessMode {
	if v.PV == nil || len(v.PV.Spec.AccessModes) == 0 {
		return v1.ReadWriteOnce
	}
	return v.PV.Spec.AccessModes[0]
}

func (v *Volume) mountOptions() []string {
	if v.PV == nil {
		return nil
	}
	return v.PV.Spec.MountOptions
}

func (v *Volume) group() *int64 {
	if v.Pod.Spec.SecurityContext == nil {
		return nil
	}
	return v.Pod.Spec.SecurityContext.FSGroup
}

// publishSecret returns the secret for NodePublishVolume, or nil.
func (v *Volume) publishSecret() *v1.SecretReference {
	switch {
	case v.Inline == nil:
		return v.PV.Spec.CSI.NodePublishSecretRef
	case v.Inline.NodePublishSecretRef != nil:
		return &v1.SecretReference{Namespace: v.Pod.Namespace, Name: v.Inline.NodePublishSecretRef.Name}
	}
	return nil
}

// wantsGroup reports whether the agent gives the volume's files to the pod's fsGroup (KEP-1682).
func (v *Volume) wantsGroup(policy storagev1.FSGroupPolicy) bool {
	switch {
	case v.group() == nil || v.IsReadOnly() || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case v.fsType() == "":
		return false
	case v.PV == nil:
		return true
	}
	return slices.Contains(v.PV.Spec.AccessModes, v1.ReadWriteOnce) || slices.Contains(v.PV.Spec.AccessModes, v1.ReadWriteOncePod)
}
