// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// attachmentName returns the name of the attachment of a CSI volume to a node. Nodes and drivers' sidecars
// compute the same name.
func attachmentName(source *corev1.CSIPersistentVolumeSource, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(source.VolumeHandle+source.Driver+node)))
}

// uniqueName returns the name of a CSI volume in the status of a Node.
func uniqueName(source *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/%s^%s", source.Driver, source.VolumeHandle))
}
