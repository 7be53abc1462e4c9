// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// reason is why a pod is deleted.
type reason string

const (
	tooMany      reason = "too many pods have ended"
	outOfService reason = "its node is out of service"
	orphaned     reason = "its node no longer exists"
	neverRan     reason = "it was deleted before it had a node"
)

// victim is a pod to delete.
type victim struct {
	pod    *corev1.Pod
	reason reason
}

// garbage returns the pods to delete. lost holds the names of nodes that do not exist. At most keep
// ended pods are kept. Pods on hold are neither deleted nor counted.
func garbage(all []*corev1.Pod, nodes map[string]*corev1.Node, lost map[string]bool, keep int) []victim {
	var out []victim
	var ended []*corev1.Pod
	for _, pod := range all {
		node := nodes[pod.Spec.NodeName]
		switch {
		case ownership.IsHeld(pod):
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
			out = append(out, victim{pod, neverRan})
		case lost[pod.Spec.NodeName]:
			out = append(out, victim{pod, orphaned})
		case pod.DeletionTimestamp != nil && node != nil && isOutOfService(node):
			out = append(out, victim{pod, outOfService})
		case pods.IsTerminal(pod):
			ended = append(ended, pod)
		}
	}
	if excess := len(ended) - keep; excess > 0 {
		slices.SortFunc(ended, evictedThenOldest)
		for _, pod := range ended[:excess] {
			out = append(out, victim{pod, tooMany})
		}
	}
	return out
}

// evictedThenOldest orders evicted pods first, which have been replaced, and then older pods.
func evictedThenOldest(a, b *corev1.Pod) int {
	evicted := func(pod *corev1.Pod) int {
		if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted" {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(evicted(a), evicted(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// isOutOfService reports whether the node is not ready and has the out-of-service taint, by which an
// administrator declares that its pods will not run again.
func isOutOfService(node *corev1.Node) bool {
	return isTaintedOutOfService(node) && !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isTaintedOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
