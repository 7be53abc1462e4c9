// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storageclass gives a new PersistentVolumeClaim that names no class the
// default one, so that a volume is made for it. A claim that names the empty
// class wants none.
package storageclass

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/storage/v1"

	"github.com/kindred-project/kindred/internal/admission/defaultclass"
)

// Name is the plugin's name in the API server's configuration.
const Name = "DefaultStorageClass"

// What marks the default class: today, and before storage.k8s.io/v1.
const (
	annotation     = "storageclass.kubernetes.io/is-default-class"
	betaAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	classes listers.StorageClassLister
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Create)} }

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

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("persistentvolumeclaims") || a.GetSubresource() != "" {
		return nil
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named || claim.Spec.StorageClassName != nil {
		return nil
	}
	// Without the classes it would silently get none.
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if name := defaultclass.Of(classes, annotation, betaAnnotation); name != "" {
		claim.Spec.StorageClassName = &name
	}
	return nil
}
