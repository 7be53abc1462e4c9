// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// taints keeps pods off nodes with taints that they do not tolerate, and prefers nodes with fewer
// PreferNoSchedule taints.
type taints struct{}

func (taints) Name() string { return "TaintToleration" }

var tainted = rejectUnresolvable("node(s) had untolerated taint(s)")

func (taints) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	tolerations := pod.Spec.Tolerations
	return CheckFunc(func(node *model.Node) *Rejection {
		if isRepelled(node.Spec.Taints, tolerations) {
			return tainted
		}
		return nil
	}), nil
}

func (taints) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded:
		return !isRepelled(event.Node.Spec.Taints, pod.Spec.Tolerations)
	case NodeChanged:
		return isRepelled(event.OldNode.Spec.Taints, pod.Spec.Tolerations) &&
			!isRepelled(event.Node.Spec.Taints, pod.Spec.Tolerations)
	case SelfChanged:
		return true
	default:
		return false
	}
}

func (taints) Score(_ *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	for i, node := range nodes {
		for t := range node.Spec.Taints {
			taint := &node.Spec.Taints[t]
			if taint.Effect == v1.TaintEffectPreferNoSchedule && !tolerates(pod.Spec.Tolerations, taint) {
				scores[i]++
			}
		}
	}
	normalize(scores, true)
}

// isRepelled reports whether a taint forbids a pod with these tolerations.
func isRepelled(taints []v1.Taint, tolerations []v1.Toleration) bool {
	for i := range taints {
		effect := taints[i].Effect
		if effect != v1.TaintEffectNoSchedule && effect != v1.TaintEffectNoExecute {
			continue
		}
		if !tolerates(tolerations, &taints[i]) {
			return true
		}
	}
	return false
}

func tolerates(tolerations []v1.Toleration, taint *v1.Taint) bool {
	for i := range tolerations {
		// Lt and Gt are an alpha feature, off by default.
		if tolerations[i].ToleratesTaint(klog.Logger{}, taint, false) {
			return true
		}
	}
	return false
}
