// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// unsupported returns the name of the type of a pod's volume that no node supports, or "". internal/node/volume has
// the types that nodes support.
func unsupported(s *corev1.VolumeSource) string {
	switch {
	case s.GCEPersistentDisk != nil:
		return "gcePersistentDisk"
	case s.AWSElasticBlockStore != nil:
		return "awsElasticBlockStore"
	case s.GitRepo != nil:
		return "gitRepo"
	case s.ISCSI != nil:
		return "iscsi"
	case s.Glusterfs != nil:
		return "glusterfs"
	case s.RBD != nil:
		return "rbd"
	case s.FlexVolume != nil:
		return "flexVolume"
	case s.Cinder != nil:
		return "cinder"
	case s.CephFS != nil:
		return "cephfs"
	case s.Flocker != nil:
		return "flocker"
	case s.FC != nil:
		return "fc"
	case s.AzureFile != nil:
		return "azureFile"
	case s.VsphereVolume != nil:
		return "vsphereVolume"
	case s.Quobyte != nil:
		return "quobyte"
	case s.AzureDisk != nil:
		return "azureDisk"
	case s.PhotonPersistentDisk != nil:
		return "photonPersistentDisk"
	case s.PortworxVolume != nil:
		return "portworxVolume"
	case s.ScaleIO != nil:
		return "scaleIO"
	case s.StorageOS != nil:
		return "storageos"
	}
	return ""
}

func findInVolume(v *corev1.PersistentVolume) []Finding {
	kind := unsupportedPersistent(&v.Spec.PersistentVolumeSource)
	if kind == "" {
		return nil
	}
	return []Finding{{&persistentVolumeType, fmt.Sprintf("spec.%s: no node supports volumes of this type; pods that use the volume do not start", kind)}}
}

// unsupportedPersistent returns the name of the type of a PersistentVolume that no node supports, or "".
func unsupportedPersistent(s *corev1.PersistentVolumeSource) string {
	switch {
	case s.HostPath != nil, s.Local != nil, s.CSI != nil, s.NFS != nil:
		return ""
	case s.CephFS != nil:
		return "cephfs"
	case s.RBD != nil:
		return "rbd"
	case s.Glusterfs != nil:
		return "glusterfs"
	case s.AzureFile != nil:
		return "azureFile"
	case s.FlexVolume != nil:
		return "flexVolume"
	case s.Cinder != nil:
		return "cinder"
	case s.ScaleIO != nil:
		return "scaleIO"
	case s.StorageOS != nil:
		return "storageos"
	}
	// The other types have the same struct in pods.
	return unsupported(&corev1.VolumeSource{
		GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore, FC: s.FC, Flocker: s.Flocker,
		VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte, AzureDisk: s.AzureDisk, PhotonPersistentDisk: s.PhotonPersistentDisk,
		PortworxVolume: s.PortworxVolume, ISCSI: iscsi(s.ISCSI),
	})
}

func iscsi(s *corev1.ISCSIPersistentVolumeSource) *corev1.ISCSIVolumeSource {
	if s == nil {
		return nil
	}
	return &corev1.ISCSIVolumeSource{}
}
