// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claimresize lets a PersistentVolumeClaim grow only if its volume can:
// it is bound, and its class allows expansion.
package claimresize

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PersistentVolumeClaimResize"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	classes listers.StorageClassLister
}

var (
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Update)} }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	classes := f.Storage().V1().StorageClasses()
	p.classes = classes.Lister()
	p.SetReadyFunc(classes.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.classes == nil {
		return fmt.Errorf("%s needs informers", Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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

// expandable: a claim of a class that nobody knows has nobody to expand its volume.
func (p *Plugin) expandable(claim, old *corev1.PersistentVolumeClaim) bool {
	name := storagehelpers.GetPersistentVolumeClaimClass(claim)
	if name == "" || name != storagehelpers.GetPersistentVolumeClaimClass(old) || !p.WaitForReady() {
		return false
	}
	class, err := p.classes.Get(name)
	return err == nil && ptr.Deref(class.AllowVolumeExpansion, false)
}
