// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionTaint maps a condition and its status to the key of a taint.
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

// noSchedule returns the keys of the managed NoSchedule taints that the node should have.
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

// noExecute returns the key of the NoExecute taint that the node should have, or "". A new taint
// must be admitted by the rate limiter; replacing one by the other need not. Without evictions
// there is no taint.
func noExecute(node *corev1.Node, evictions bool, allow func() bool) string {
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
	default: // the condition is not set yet
		switch {
		case notReady:
			return corev1.TaintNodeNotReady
		case unreachable:
			return corev1.TaintNodeUnreachable
		}
		return ""
	}
	if !evictions || !notReady && !unreachable && !allow() {
		return ""
	}
	return key
}

func hasTaint(node *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == key && t.Effect == effect
	})
}

// isManaged reports whether only this controller sets the taint.
func isManaged(t *corev1.Taint) bool {
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	case corev1.TaintEffectNoSchedule:
		return t.Key == corev1.TaintNodeUnschedulable ||
			slices.ContainsFunc(conditionTaints, func(c conditionTaint) bool { return c.key == t.Key })
	}
	return false
}

// retaint returns the node's taints with the managed ones replaced by the given ones. Unchanged
// taints keep their position and time.
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
		if at >= 0 || !isManaged(&taints[i]) {
			result = append(result, taints[i])
		}
	}
	for _, w := range wanted {
		w.TimeAdded = new(metav1.NewTime(now))
		result = append(result, w)
	}
	return result
}

// betaLabels maps deprecated labels to the stable ones with the same value, for selectors that still
// use them.
var betaLabels = map[string]string{
	corev1.LabelOSStable:   "beta.kubernetes.io/os",
	corev1.LabelArchStable: "beta.kubernetes.io/arch",
}

// missingLabels returns the labels to add to the node.
func missingLabels(node *corev1.Node) map[string]string {
	missing := map[string]string{}
	for stable, beta := range betaLabels {
		if value, ok := node.Labels[stable]; ok && node.Labels[beta] != value {
			missing[beta] = value
		}
	}
	return missing
}
