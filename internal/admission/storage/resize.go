// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// ResizeName is the name of the plugin Resize in the API server's configuration.
const ResizeName = "PersistentVolumeClaimResize"

// Resize lets a PersistentVolumeClaim grow only if its volume can grow: the claim
// is bound, and its StorageClass allows expansion.
type Resize struct {
	*informer.Handler[listers.StorageClassLister]
}

var _ admission.ValidationInterface = &Resize{}

// NewResize returns the plugin.
func NewResize() *Resize {
	return &Resize{informer.New(ResizeName, func(f informers.SharedInformerFactory) informer.Informer[listers.StorageClassLister] {
		return f.Storage().V1().StorageClasses()
	}, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (p *Resize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("persistentvolumeclaims") || a.GetSubresource() != "" {
		return nil
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, wasClaim := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok || !wasClaim || !grows(claim, old) {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		//lint:ignore ST1005 upstream's words
		return admission.NewForbidden(a, errors.New("Only bound persistent volume claims can be expanded"))
	}
	if !p.expandable(claim, old) {
		return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

func grows(claim, old *corev1.PersistentVolumeClaim) bool {
	size, before := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.Cmp(before) > 0
}

// expandable reports whether the claim's class allows expansion. A claim whose
// class is empty, changed or missing has no provisioner to expand its volume.
func (p *Resize) expandable(claim, old *corev1.PersistentVolumeClaim) bool {
	name := storagehelpers.GetPersistentVolumeClaimClass(claim)
	if name == "" || name != storagehelpers.GetPersistentVolumeClaimClass(old) || !p.WaitForReady() {
		return false
	}
	class, err := p.Lister.Get(name)
	return err == nil && ptr.Deref(class.AllowVolumeExpansion, false)
}
