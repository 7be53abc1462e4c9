// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// admit says why a node refuses a pod, or nothing. A scheduler asks all this before it
// assigns a pod; who sets spec.nodeName by hand does not.
func admit(logger klog.Logger, l *ledger, node *v1.Node, p *v1.Pod) *pod.Refusal {
	if _, err := behaviourOf(p); err != nil {
		return &pod.Refusal{Reason: "InvalidSimulation", Message: err.Error()}
	}
	if os, ok := p.Labels[v1.LabelOSStable]; ok && os != node.Labels[v1.LabelOSStable] {
		return &pod.Refusal{
			Reason:  "PodOSSelectorNodeLabelDoesNotMatch",
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != v1.Linux {
		return &pod.Refusal{
			Reason:  "PodOSNotSupported",
			Message: "Failed to admit pod as the OS field doesn't match node OS",
		}
	}
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); err != nil || !fits {
		return predicateFailed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	if _, found := corev1.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, p.Spec.Tolerations, isNoExecute, true); found {
		return predicateFailed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return l.reserve(p, node.Status.Allocatable)
}

func isNoExecute(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }

func predicateFailed(name, why string) *pod.Refusal {
	return &pod.Refusal{Reason: name, Message: "Predicate " + name + " failed: " + why}
}

// isNew says whether no node has looked at the pod yet.
func isNew(p *v1.Pod) bool {
	return p.Status.StartTime == nil && !isOver(p) && p.DeletionTimestamp == nil
}
