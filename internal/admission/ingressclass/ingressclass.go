// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingressclass gives a new Ingress that names no class the default one,
// so that whichever controller serves that class takes it up.
package ingressclass

import (
	"context"
	"errors"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/networking/v1"

	"github.com/kindred-project/kindred/internal/admission/defaultclass"
)

// Name is the plugin's name in the API server's configuration.
const Name = "DefaultIngressClass"

// annotation named an Ingress's class before there was a field for it.
const annotation = "kubernetes.io/ingress.class"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	classes listers.IngressClassLister
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Create)} }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	classes := f.Networking().V1().IngressClasses()
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
	if a.GetResource().GroupResource() != networkingv1.Resource("ingresses") || a.GetSubresource() != "" {
		return nil
	}
	ingress, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok {
		//lint:ignore ST1005 upstream's words
		return apierrors.NewInternalError(fmt.Errorf("Expected Ingress resource, got: %v", a.GetKind()))
	}
	if _, named := ingress.Annotations[annotation]; named || ingress.Spec.IngressClassName != nil {
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
	if name := defaultclass.Of(classes, networkingv1.AnnotationIsDefaultIngressClass); name != "" {
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
