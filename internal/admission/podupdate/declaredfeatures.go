// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	versionutil "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-base/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
)

// DeclaredFeaturesName is the name of the plugin DeclaredFeatures in the API
// server's configuration.
const DeclaredFeaturesName = "NodeDeclaredFeatureValidator"

// served is the version of the API. Nodes need not declare features that all nodes
// of this version have.
var served = versionutil.MustParse(version.DefaultKubeBinaryVersion)

// DeclaredFeatures refuses an update of a pod that requires a feature which its
// node does not declare (KEP-5328), such as a resize of pod-level resources.
// k8s.io/component-helpers/nodedeclaredfeatures defines which updates require
// which features.
type DeclaredFeatures struct{ handler }

var _ admission.ValidationInterface = &DeclaredFeatures{}

// NewDeclaredFeatures returns the plugin.
func NewDeclaredFeatures() *DeclaredFeatures {
	return &DeclaredFeatures{newHandler(DeclaredFeaturesName, "", "resize")}
}

// Validate implements admission.ValidationInterface.
func (p *DeclaredFeatures) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, old, err := p.changedPod(a)
	if err != nil || pod == nil {
		return err
	}
	return p.validate(a, pod, old)
}

func (p *DeclaredFeatures) validate(a admission.Attributes, pod, old *corev1.Pod) error {
	required, err := features.DefaultFramework.InferForPodUpdate(podInfo(old), podInfo(pod), served)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if required.IsEmpty() {
		return nil
	}
	node, err := p.nodeOf(a, pod)
	if err != nil {
		return err
	}
	result, err := features.DefaultFramework.MatchNode(required, node)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	}
	if result.IsMatch {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("pod update requires features %s which are not available on node %q",
		strings.Join(result.UnsatisfiedRequirements, ", "), node.Name))
}

func podInfo(pod *corev1.Pod) *features.PodInfo {
	return &features.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}
