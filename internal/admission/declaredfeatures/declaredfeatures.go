// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package declaredfeatures refuses an update of a pod that needs what its node
// does not declare to have (KEP-5328), such as a resize of the resources of the
// pod as a whole. Which update needs which feature, the library knows.
package declaredfeatures

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	versionutil "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
)

// Name is the plugin's name in the API server's configuration.
const Name = "NodeDeclaredFeatureValidator"

// ours is the version that is served: nodes need not declare what all of its nodes have.
var ours = versionutil.MustParse(version.DefaultKubeBinaryVersion)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	nodes listers.NodeLister
}

var (
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Update)} }

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

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" && a.GetSubresource() != "resize" {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a pod but got a %T", a.GetObject()))
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	old, ok := a.GetOldObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", a.GetOldObject()))
	}
	// The generation grows with each change of the spec.
	if old.Generation == pod.Generation {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	return p.judge(a, pod, old)
}

func (p *Plugin) judge(a admission.Attributes, pod, old *corev1.Pod) error {
	needed, err := features.DefaultFramework.InferForPodUpdate(info(old), info(pod), ours)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if needed.IsEmpty() {
		return nil
	}
	node, err := p.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return admission.NewForbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
	}
	result, err := features.DefaultFramework.MatchNode(needed, node)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	}
	if result.IsMatch {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("pod update requires features %s which are not available on node %q",
		strings.Join(result.UnsatisfiedRequirements, ", "), node.Name))
}

func info(pod *corev1.Pod) *features.PodInfo {
	return &features.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}
