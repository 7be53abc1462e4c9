// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unserved holds the plugin that warns the creators of objects about what nothing in the cluster acts on.
package unserved

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"github.com/kindred-project/kindred/internal/unserved"
)

// Name is the name of the plugin in the API server's configuration.
const Name = "UnservedWarning"

// Plugin adds warnings to the responses of requests. It neither changes nor refuses one.
type Plugin struct {
	*admission.Handler
	cluster cluster
}

var (
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)} }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	nodes, classes := f.Core().V1().Nodes(), f.Networking().V1().IngressClasses()
	claims := f.Resource().V1().ResourceClaims()
	p.cluster = cluster{nodes: nodes.Lister(), classes: classes.Lister(), claims: claims.Lister()}
	synced := []func() bool{nodes.Informer().HasSynced, classes.Informer().HasSynced, claims.Informer().HasSynced}
	p.cluster.synced = func() bool { return synced[0]() && synced[1]() && synced[2]() }
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.cluster.synced == nil {
		return fmt.Errorf("%s needs informers", Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface. Until the informers have synced, it does not warn: a request must
// not wait for a warning.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || !p.cluster.synced() {
		return nil
	}
	for _, text := range unserved.New(a.GetObject(), orNil(a.GetOldObject()), p.cluster) {
		warning.AddWarning(ctx, "", text)
	}
	return nil
}

func orNil(o runtime.Object) any {
	if o == nil {
		return nil
	}
	return o
}

// cluster reads from the API server's informers.
type cluster struct {
	nodes   corelisters.NodeLister
	classes networkinglisters.IngressClassLister
	claims  resourcelisters.ResourceClaimLister
	synced  func() bool
}

func (c cluster) Nodes() []*corev1.Node {
	nodes, _ := c.nodes.List(labels.Everything()) // an informer's lister has no errors
	return nodes
}

func (c cluster) IngressClasses() []*networkingv1.IngressClass {
	classes, _ := c.classes.List(labels.Everything())
	return classes
}

func (c cluster) HasResourceClaim(namespace, name string) bool {
	_, err := c.claims.ResourceClaims(namespace).Get(name)
	return !apierrors.IsNotFound(err)
}
