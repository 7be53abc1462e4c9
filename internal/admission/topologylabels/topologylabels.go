// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topologylabels copies the zone and region of a node to the pods that
// are bound to it, so that a pod can learn them through the downward API
// without a look at nodes (KEP-4742).
package topologylabels

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PodTopologyLabels"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	nodes listers.NodeLister
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create)}
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	nodes := f.Core().V1().Nodes()
	p.nodes = nodes.Lister()
	p.SetReadyFunc(nodes.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.nodes == nil {
		return fmt.Errorf("%s needs informers", Name)
	}
	return nil
}

// Admit implements admission.MutationInterface. A Binding's labels are given to
// its pod when it is bound; a pod that is created on a node gets them itself.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") {
		return nil
	}
	switch o := a.GetObject().(type) {
	case *corev1.Pod:
		if a.GetSubresource() == "" && o.Spec.NodeName != "" {
			return p.label(a, &o.ObjectMeta, o.Spec.NodeName)
		}
	case *corev1.Binding:
		if a.GetSubresource() == "binding" && o.Target.Kind == "Node" {
			return p.label(a, &o.ObjectMeta, o.Target.Name)
		}
	}
	return nil
}

// label copies the labels of a node, if there is one of that name.
func (p *Plugin) label(a admission.Attributes, m *metav1.ObjectMeta, nodeName string) error {
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	node, err := p.nodes.Get(nodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[key] = value
	}
	return nil
}
