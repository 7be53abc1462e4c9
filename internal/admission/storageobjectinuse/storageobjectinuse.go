// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storageobjectinuse gives new volumes, claims and classes of volume
// attributes a finalizer, so that none is gone while somebody uses it: a claim
// while a pod has it, a volume while a claim has it. The controllers that know
// who uses what take the finalizer away.
package storageobjectinuse

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// Name is the plugin's name in the API server's configuration.
const Name = "StorageObjectInUseProtection"

// finalizers are what holds each kind.
var finalizers = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumes"):          "kubernetes.io/pv-protection",
	corev1.Resource("persistentvolumeclaims"):     "kubernetes.io/pvc-protection",
	storagev1.Resource("volumeattributesclasses"): "kubernetes.io/vac-protection",
}

// Plugin is the admission plugin.
type Plugin struct{ *admission.Handler }

var _ admission.MutationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin { return &Plugin{admission.NewHandler(admission.Create)} }

// Admit implements admission.MutationInterface.
func (*Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	finalizer, found := finalizers[a.GetResource().GroupResource()]
	if !found || a.GetSubresource() != "" {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	if held := obj.GetFinalizers(); !slices.Contains(held, finalizer) {
		obj.SetFinalizers(append(held, finalizer))
	}
	return nil
}
