// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package defaultclass

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/networking/v1"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// IngressClassName is the name of the plugin IngressClass in the API server's
// configuration.
const IngressClassName = "DefaultIngressClass"

// ingressClassAnnotation named an Ingress's class before spec.ingressClassName
// did.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// IngressClass gives a new Ingress without a class the default one.
type IngressClass struct {
	*informer.Handler[listers.IngressClassLister]
}

var _ admission.MutationInterface = &IngressClass{}

// NewIngressClass returns the plugin.
func NewIngressClass() *IngressClass {
	return &IngressClass{informer.New(IngressClassName, func(f informers.SharedInformerFactory) informer.Informer[listers.IngressClassLister] {
		return f.Networking().V1().IngressClasses()
	}, admission.Create)}
}

// Admit implements admission.MutationInterface.
func (p *IngressClass) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != networkingv1.Resource("ingresses") || a.GetSubresource() != "" {
		return nil
	}
	ingress, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok {
		//lint:ignore ST1005 upstream's words
		return apierrors.NewInternalError(fmt.Errorf("Expected Ingress resource, got: %v", a.GetKind()))
	}
	if _, named := ingress.Annotations[ingressClassAnnotation]; named {
		return nil
	}
	return setDefault(p.Handler, a, &ingress.Spec.IngressClassName, networkingv1.AnnotationIsDefaultIngressClass)
}
