// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// nodeAnnotation is the annotation of a volume with the name of the node of its directory.
const nodeAnnotation = "kindred.dev/local-path-node"

// isWaiting reports whether a claim waits for a volume of this provisioner.
func isWaiting(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[volume.AnnStorageProvisioner] == Provisioner && claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil
}

// check returns why a volume for a claim cannot be provisioned, or nil.
func check(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	switch {
	case class.Provisioner != Provisioner:
		return fmt.Errorf("the class has the provisioner %s", class.Provisioner)
	case len(class.Parameters) > 0:
		return fmt.Errorf("unknown parameters of the class: %q", slices.Sorted(maps.Keys(class.Parameters)))
	case claim.Annotations[volume.AnnSelectedNode] == "":
		return errors.New("no node is selected; the class must have volumeBindingMode WaitForFirstConsumer")
	case claim.Spec.Selector != nil:
		return errors.New("claim Selector is not supported")
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return errors.New("a new volume is empty: dataSource and dataSourceRef are not supported")
	case ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != "":
		return errors.New("volumeAttributesClassName is not supported")
	}
	return nil
}

// volumeName returns the name of a claim's volume, which external provisioners use too.
func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// simulatedPath returns the path that the volume of a simulated node has in its spec. Nothing exists there.
func simulatedPath(name string) string { return "/simulated/" + name }

// newVolume returns the volume of a claim, bound to it, with the given path on a node.
func newVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node, path string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volumeName(claim),
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: Provisioner, nodeAnnotation: node.Name},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			MountOptions:                  class.MountOptions,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			NodeAffinity: onlyOn(node),
		},
	}
	v.Finalizers = finalizers(v)
	return v
}

// onlyOn returns the affinity of a volume that can be used on one node.
func onlyOn(node *corev1.Node) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Labels[corev1.LabelHostname]},
		}},
	}}}}
}
