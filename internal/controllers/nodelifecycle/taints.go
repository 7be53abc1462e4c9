// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTaint says which condition, in which status, taints a node with which key.
type conditionTaint struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}

var conditionTaints = []conditionTaint{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
}

// noSchedule returns the keys of the NoSchedule taints that the node should have,
// of those that are the controller's to set.
func noSchedule(node *corev1.Node) []string {
	var keys []string
	for _, t := range conditionTaints {
		if c := condition(node.Status.Conditions, t.condition); c != nil && c.Status == t.status {
			keys = append(keys, t.key)
		}
	}
	if node.Spec.Unschedulable {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	return keys
}

// noExecute returns the key of the NoExecute taint that the node should have, or
// "". A node that has neither gets one only if admit says so; one that has the
// other has been admitted before. When evictions are off, none is wanted.
func noExecute(node *corev1.Node, evictions bool, admit func() bool) string {
	has := func(key string) bool { return hasTaint(node, key, corev1.TaintEffectNoExecute) }
	notReady, unreachable := has(corev1.TaintNodeNotReady), has(corev1.TaintNodeUnreachable)
	var key string
	switch readiness(node) {
	case corev1.ConditionTrue:
		return ""
	case corev1.ConditionFalse:
		key = corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		key = corev1.TaintNodeUnreachable
	default: // nothing was said about it yet
		switch {
		case notReady:
			return corev1.TaintNodeNotReady
		case unreachable:
			return corev1.TaintNodeUnreachable
		}
		return ""
	}
	if !evictions || !notReady && !unreachable && !admit() {
		return ""
	}
	return key
}

func hasTaint(node *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == key && t.Effect == effect
	})
}

// ours tells whether the controller alone decides about a taint.
func ours(t *corev1.Taint) bool {
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	case corev1.TaintEffectNoSchedule:
		return t.Key == corev1.TaintNodeUnschedulable ||
			slices.ContainsFunc(conditionTaints, func(c conditionTaint) bool { return c.key == t.Key })
	}
	return false
}

// retaint returns the node's taints with ours replaced by the given ones. Taints
// that stay keep their place and their time.
func retaint(taints []corev1.Taint, noSchedule []string, noExecute string, now time.Time) []corev1.Taint {
	wanted := make([]corev1.Taint, 0, len(noSchedule)+1)
	for _, key := range noSchedule {
		wanted = append(wanted, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	if noExecute != "" {
		wanted = append(wanted, corev1.Taint{Key: noExecute, Effect: corev1.TaintEffectNoExecute})
	}
	var result []corev1.Taint
	for i := range taints {
		at := slices.IndexFunc(wanted, func(w corev1.Taint) bool { return w.MatchTaint(&taints[i]) })
		if at >= 0 {
			wanted = slices.Delete(wanted, at, at+1)
		}
		if at >= 0 || !ours(&taints[i]) {
			result = append(result, taints[i])
		}
	}
	for _, w := range wanted {
		w.TimeAdded = new(metav1.NewTime(now))
		result = append(result, w)
	}
	return result
}

// betaLabels are the deprecated labels that repeat stable ones. Whoever still
// selects by them must find the same nodes.
var betaLabels = map[string]string{
	corev1.LabelOSStable:   "beta.kubernetes.io/os",
	corev1.LabelArchStable: "beta.kubernetes.io/arch",
}

// relabel returns the labels that the node lacks.
func relabel(node *corev1.Node) map[string]string {
	missing := map[string]string{}
	for stable, beta := range betaLabels {
		if value, ok := node.Labels[stable]; ok && node.Labels[beta] != value {
			missing[beta] = value
		}
	}
	return missing
}
