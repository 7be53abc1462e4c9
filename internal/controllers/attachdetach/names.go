// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
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

// attaches reports whether an attachment is the one of the volume to its node. Others may exist; they have other
// names.
func (v volume) attaches(a *storagev1.VolumeAttachment) bool {
	return a.Spec.Attacher == v.driver && a.Name == v.attachmentName(a.Spec.NodeName)
}

// persistentVolumeOf returns the name of the PersistentVolume of an attachment, or "".
func persistentVolumeOf(a *storagev1.VolumeAttachment) string {
	return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
}

const (
	// persistentVolumeIndex finds PersistentVolumes by the volume that they name.
	persistentVolumeIndex = ".spec.csi.uniqueName"
	// sourceIndex finds attachments by their PersistentVolume, and nodeIndex by their node.
	sourceIndex = ".spec.source.persistentVolumeName"
	nodeIndex   = ".spec.nodeName"
)

// addIndexes adds the indexes of the shared cache that the controller uses.
func addIndexes(ctx context.Context, to client.FieldIndexer) error {
	return errors.Join(
		to.IndexField(ctx, &corev1.PersistentVolume{}, persistentVolumeIndex, indexPersistentVolume),
		to.IndexField(ctx, &storagev1.VolumeAttachment{}, sourceIndex, indexAttachment(persistentVolumeOf)),
		to.IndexField(ctx, &storagev1.VolumeAttachment{}, nodeIndex, indexAttachment(func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName })),
	)
}

func indexAttachment(by func(*storagev1.VolumeAttachment) string) client.IndexerFunc {
	return func(obj client.Object) []string {
		a, ok := obj.(*storagev1.VolumeAttachment)
		if !ok {
			return nil
		}
		return []string{by(a)}
	}
}

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
