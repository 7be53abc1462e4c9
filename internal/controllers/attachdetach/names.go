// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// volume identifies a volume of a CSI driver. Several PersistentVolumes may name it.
type volume struct {
	driver, handle string
}

const uniqueNamePrefix = "kubernetes.io/csi/"

// attachmentName returns the name of the attachment to a node. Nodes and drivers' sidecars compute the
// same name.
func (v volume) attachmentName(node string) string {
	sum := sha256.Sum256([]byte(v.handle + v.driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// uniqueName returns the name of the volume in the status of a Node.
func (v volume) uniqueName() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(uniqueNamePrefix + v.driver + "^" + v.handle)
}

// byUniqueName returns the volume that a Node's status names.
func byUniqueName(name corev1.UniqueVolumeName) (v volume, ok bool) {
	rest, isCSI := strings.CutPrefix(string(name), uniqueNamePrefix)
	v.driver, v.handle, ok = strings.Cut(rest, "^")
	return v, isCSI && ok
}

// byPersistentVolume returns the volume that a PersistentVolume names.
func byPersistentVolume(pv *corev1.PersistentVolume) (v volume, ok bool) {
	if pv.Spec.CSI == nil {
		return volume{}, false
	}
	return volume{driver: pv.Spec.CSI.Driver, handle: pv.Spec.CSI.VolumeHandle}, true
}

// request returns the request to reconcile the volume.
func (v volume) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: v.driver, Name: v.handle}}
}

func byRequest(req reconcile.Request) volume {
	return volume{driver: req.Namespace, handle: req.Name}
}

// persistentVolumeIndex finds PersistentVolumes by the volume that they name.
const persistentVolumeIndex = ".spec.csi.uniqueName"

func indexPersistentVolume(obj client.Object) []string {
	pv, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return nil
	}
	v, ok := byPersistentVolume(pv)
	if !ok {
		return nil
	}
	return []string{string(v.uniqueName())}
}
