// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	baseversion "k8s.io/component-base/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// current is the version of the node. It need not declare features that all nodes of it have.
var current = version.MustParse(baseversion.DefaultKubeBinaryVersion)

// checkFeatures refuses a pod that needs features which the node does not declare (KEP-5328).
func checkFeatures(node *v1.Node, p *v1.Pod) *pod.Refusal {
	const reason = "PodFeatureUnsupported"
	required, err := declared.DefaultFramework.InferForPodScheduling(&declared.PodInfo{Spec: &p.Spec, Status: &p.Status}, current)
	if err != nil {
		return &pod.Refusal{Reason: reason, Message: fmt.Sprintf("Failed to infer pod's feature requirements: %v", err)}
	}
	result, err := declared.DefaultFramework.MatchNode(required, node)
	switch {
	case err != nil:
		return &pod.Refusal{Reason: reason, Message: fmt.Sprintf("Failed to match pod's feature requirements against the node: %v", err)}
	case !result.IsMatch:
		missing := strings.Join(result.UnsatisfiedRequirements, ", ")
		return &pod.Refusal{Reason: reason, Message: "Pod requires node features that are not available: " + missing}
	}
	return nil
}
