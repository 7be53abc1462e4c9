// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package declaredfeatures refuses an update of a pod that needs what its node
// does not declare to have (KEP-5328), such as a resize of the resources of the
// pod as a whole. Which update needs which feature, the library knows.
package declaredfeatures

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	versionutil "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-base/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/kindred-project/kindred/internal/admission/assigned"
)

// Name is the plugin's name in the API server's configuration.
const Name = "NodeDeclaredFeatureValidator"

// ours is the version that is served: nodes need not declare what all of its nodes have.
var ours = versionutil.MustParse(version.DefaultKubeBinaryVersion)

// Plugin is the admission plugin.
type Plugin struct{ *assigned.Plugin }

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin { return &Plugin{assigned.New(Name, "", "resize")} }

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, old, err := p.Changed(a)
	if err != nil || pod == nil {
		return err
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
	node, err := p.Node(a, pod)
	if err != nil {
		return err
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
