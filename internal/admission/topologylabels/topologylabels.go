// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topologylabels copies the zone and region labels of a node to the pods
// that are bound to it, so that a pod gets them through the downward API without
// reading nodes (KEP-4742).
package topologylabels

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PodTopologyLabels"

// Plugin is the admission plugin.
type Plugin struct {
	*informer.Handler[listers.NodeLister]
}

var _ admission.MutationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{informer.New(Name, func(f informers.SharedInformerFactory) informer.Informer[listers.NodeLister] {
		return f.Core().V1().Nodes()
	}, admission.Create)}
}

// Admit implements admission.MutationInterface. It labels Bindings, whose labels
// are copied to the pod when it is bound, and pods that are created with a node.
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

// label copies the labels of the node; a missing node is ignored.
func (p *Plugin) label(a admission.Attributes, m *metav1.ObjectMeta, nodeName string) error {
	if err := p.WaitForSync(a); err != nil {
		return err
	}
	node, err := p.Lister.Get(nodeName)
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
