// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assigned is what admission plugins share that hold the changes of pods to what
// their nodes can do: which changes there are to look at, and on which node.
package assigned

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
)

// Plugin is the part of a plugin that knows the nodes.
type Plugin struct {
	*admission.Handler
	name         string
	subresources []string
	nodes        listers.NodeLister
}

var _ initializer.WantsExternalKubeInformerFactory = &Plugin{}

// New returns the part of the plugin of that name, which looks at pods written through
// these subresources, "" for the pods themselves.
func New(name string, subresources ...string) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Update), name: name, subresources: subresources}
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
		return fmt.Errorf("%s needs informers", p.name)
	}
	return nil
}

// Changed returns a pod that has a node and whose spec changes, with what it was; nil for
// all other requests.
func (p *Plugin) Changed(a admission.Attributes) (now, old *corev1.Pod, err error) {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || !slices.Contains(p.subresources, a.GetSubresource()) {
		return nil, nil, nil
	}
	now, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("expected a pod but got a %T", a.GetObject()))
	}
	if now.Spec.NodeName == "" {
		return nil, nil, nil
	}
	old, ok = a.GetOldObject().(*corev1.Pod)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", a.GetOldObject()))
	}
	// The generation grows with each change of the spec.
	if old.Generation == now.Generation {
		return nil, nil, nil
	}
	if !p.WaitForReady() {
		return nil, nil, admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	return now, old, nil
}

// Node is the pod's; without one the request is refused.
func (p *Plugin) Node(a admission.Attributes, pod *corev1.Pod) (*corev1.Node, error) {
	node, err := p.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
	}
	return node, nil
}
