// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package noderestriction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// volumeReference returns the resource of an API object that a volume refers to, or
// "". An unknown type of volume is an error, since it may refer to one.
func volumeReference(v *corev1.Volume) (string, error) {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected != nil:
		return projectedReference(v)
	case needsNoAPI(v):
		return "", nil
	default:
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
}

func projectedReference(v *corev1.Volume) (string, error) {
	for _, source := range v.Projected.Sources {
		switch {
		case source.ConfigMap != nil:
			return "configmaps (via projected volumes)", nil
		case source.Secret != nil:
			return "secrets (via projected volumes)", nil
		case source.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)", nil
		case source.ClusterTrustBundle != nil:
			return "clustertrustbundles", nil
		case source.PodCertificate != nil:
			return "podcertificates", nil
		case source.DownwardAPI == nil:
			return "", fmt.Errorf("unknown source for projected volume %q", v.Name)
		}
	}
	return "", nil
}

// needsNoAPI reports whether a volume is of a type that is mounted from the pod spec
// alone.
func needsNoAPI(v *corev1.Volume) bool {
	return v.AWSElasticBlockStore != nil || v.AzureDisk != nil || v.CephFS != nil || v.Cinder != nil ||
		v.DownwardAPI != nil || v.EmptyDir != nil || v.FC != nil || v.FlexVolume != nil || v.Flocker != nil ||
		v.GCEPersistentDisk != nil || v.GitRepo != nil || v.HostPath != nil || v.Image != nil || v.ISCSI != nil ||
		v.NFS != nil || v.PhotonPersistentDisk != nil || v.PortworxVolume != nil || v.Quobyte != nil ||
		v.RBD != nil || v.ScaleIO != nil || v.StorageOS != nil || v.VsphereVolume != nil
}
