// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission checks whether a node can run a pod that is assigned to it. The scheduler has
// checked most of this. But a pod may name its node itself, nodes change, and two schedulers may fill
// a node at the same time.
//
// Real and simulated nodes make the same checks in the kubelet's order. The first one that fails is
// the reason in the pod's status.
package admission

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// Check returns why a node with this load refuses a pod, or nil if it admits the pod. Unsafe sysctls are refused, but those
// that unsafeSysctls, patterns of allowedUnsafeSysctls, stand for.
func Check(logger klog.Logger, node *v1.Node, p *v1.Pod, load *Load, unsafeSysctls ...string) *pod.Refusal {
	return check(logger, node, p, load, func(share Share) *pod.Refusal {
		return load.checkResources(share, node.Status.Allocatable)
	}, unsafeSysctls)
}

// CheckCritical is Check for a critical pod, which the node refuses for no resource if it can preempt other pods. It also
// returns the resources that are short.
func CheckCritical(logger klog.Logger, node *v1.Node, p *v1.Pod, load *Load, unsafeSysctls ...string) ([]Shortfall, *pod.Refusal) {
	refusal := check(logger, node, p, load, func(Share) *pod.Refusal { return nil }, unsafeSysctls)
	return load.Shortfalls(ShareOf(p), node.Status.Allocatable), refusal
}

func check(logger klog.Logger, node *v1.Node, p *v1.Pod, load *Load, resources func(Share) *pod.Refusal, unsafeSysctls []string) *pod.Refusal {
	share := ShareOf(p)
	for _, check := range []func() *pod.Refusal{
		func() *pod.Refusal { return CheckSysctls(node, p, unsafeSysctls) },
		func() *pod.Refusal { return checkOS(p) },
		func() *pod.Refusal { return checkGroupsPolicy(node, p) },
		func() *pod.Refusal { return resources(share) },
		func() *pod.Refusal { return checkAffinity(node, p) },
		func() *pod.Refusal { return load.checkPorts(share) },
		func() *pod.Refusal { return checkTaints(logger, node, p) },
		func() *pod.Refusal { return checkFeatures(node, p) },
	} {
		if refusal := check(); refusal != nil {
			return refusal
		}
	}
	return nil
}

// checkOS refuses pods for other operating systems than Linux.
func checkOS(p *v1.Pod) *pod.Refusal {
	if label, ok := p.Labels[v1.LabelOSStable]; ok && label != string(v1.Linux) {
		return &pod.Refusal{
			Reason:  "PodOSSelectorNodeLabelDoesNotMatch",
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != v1.Linux {
		return &pod.Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// checkGroupsPolicy refuses a pod with the policy Strict if the node's runtime does not implement it
// and would add the groups of images (KEP-3619).
func checkGroupsPolicy(node *v1.Node, p *v1.Pod) *pod.Refusal {
	sc, features := p.Spec.SecurityContext, node.Status.Features
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if features != nil && features.SupplementalGroupsPolicy != nil && *features.SupplementalGroupsPolicy {
		return nil
	}
	return &pod.Refusal{
		Reason:  "SupplementalGroupsPolicyNotSupported",
		Message: "SupplementalGroupsPolicy=Strict is not supported in this node",
	}
}

func checkAffinity(node *v1.Node, p *v1.Pod) *pod.Refusal {
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); err == nil && fits {
		return nil
	}
	return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
}

// checkTaints refuses a pod only because of a NoExecute taint: other effects matter only to the
// scheduler.
func checkTaints(logger klog.Logger, node *v1.Node, p *v1.Pod) *pod.Refusal {
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, p.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute
	}, true)
	if !untolerated {
		return nil
	}
	return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
}

func predicate(name, description string) *pod.Refusal {
	return &pod.Refusal{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, description)}
}
