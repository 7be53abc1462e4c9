// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package taints holds the plugins of node taints: TaintNodesByCondition taints
// new nodes as not ready, and DefaultTolerationSeconds lets pods tolerate such
// nodes for a while.
package taints

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// NodeName is the name of the plugin Node in the API server's configuration.
const NodeName = "TaintNodesByCondition"

// Node taints each new node as not ready, so that no pod is bound to it before
// its first status report. The node lifecycle controller removes the taint.
type Node struct{ *admission.Handler }

var _ admission.MutationInterface = &Node{}

// NewNode returns the plugin.
func NewNode() *Node { return &Node{admission.NewHandler(admission.Create)} }

// Admit implements admission.MutationInterface.
func (*Node) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("nodes") || a.GetSubresource() != "" {
		return nil
	}
	node, ok := a.GetObject().(*corev1.Node)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("unexpected type %T", a.GetObject()))
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
