// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// nodeUnschedulable keeps pods off cordoned nodes, unless they tolerate the taint of cordoned
// nodes.
type nodeUnschedulable struct{}

func (nodeUnschedulable) Name() string { return "NodeUnschedulable" }

var cordoned = rejectUnresolvable("node(s) were unschedulable")

func (nodeUnschedulable) For(_ *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	if toleratesCordon(pod) {
		return nil, nil
	}
	return CheckFunc(func(node *model.Node) *Rejection {
		if node.Spec.Unschedulable {
			return cordoned
		}
		return nil
	}), nil
}

func (nodeUnschedulable) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded:
		return !event.Node.Spec.Unschedulable
	case NodeChanged:
		return event.OldNode.Spec.Unschedulable && !event.Node.Spec.Unschedulable
	case SelfChanged:
		return toleratesCordon(pod)
	default:
		return false
	}
}

func toleratesCordon(pod *model.Pod) bool {
	return tolerates(pod.Spec.Tolerations, &v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
}
