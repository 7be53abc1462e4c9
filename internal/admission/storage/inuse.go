// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage holds the plugins of volumes and claims:
// StorageObjectInUseProtection and PersistentVolumeClaimResize.
package storage

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// InUseName is the name of the plugin InUse in the API server's configuration.
const InUseName = "StorageObjectInUseProtection"

// finalizers protect objects of each kind.
var finalizers = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumes"):          "kubernetes.io/pv-protection",
	corev1.Resource("persistentvolumeclaims"):     "kubernetes.io/pvc-protection",
	storagev1.Resource("volumeattributesclasses"): "kubernetes.io/vac-protection",
}

// InUse gives new PersistentVolumes, PersistentVolumeClaims and
// VolumeAttributesClasses a finalizer, so that none is removed while it is in use:
// a claim by a pod, a volume by a claim. The volume protection controllers remove
// the finalizer.
type InUse struct{ *admission.Handler }

var _ admission.MutationInterface = &InUse{}

// NewInUse returns the plugin.
func NewInUse() *InUse { return &InUse{admission.NewHandler(admission.Create)} }

// Admit implements admission.MutationInterface.
func (*InUse) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	finalizer, found := finalizers[a.GetResource().GroupResource()]
	if !found || a.GetSubresource() != "" {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	if all := obj.GetFinalizers(); !slices.Contains(all, finalizer) {
		obj.SetFinalizers(append(all, finalizer))
	}
	return nil
}
