// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Upstream's defaults of --node-monitor-grace-period and --node-startup-grace-period: how long a
// node may be without heartbeat, and how long until its first status.
const (
	monitorGracePeriod = 50 * time.Second
	startupGracePeriod = 60 * time.Second
)

// health holds the last heartbeats of a node, and when they were seen. The first observation
// counts as a heartbeat.
type health struct {
	seen      time.Time // when a heartbeat last changed
	heartbeat time.Time // lastHeartbeatTime of the condition Ready
	renewed   time.Time // renewTime of the Lease
}

// observe returns the health after an observation of the node and its Lease, which may be nil.
func (h health) observe(node *corev1.Node, lease *coordinationv1.Lease, now time.Time) health {
	next := h
	if ready := condition(node.Status.Conditions, corev1.NodeReady); ready != nil {
		next.heartbeat = ready.LastHeartbeatTime.Time
	}
	if lease != nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(h.renewed) {
		next.renewed = lease.Spec.RenewTime.Time
	}
	if next != h || h.seen.IsZero() {
		next.seen = now
	}
	return next
}

// deadline returns when the node is lost without another heartbeat.
func (h health) deadline(node *corev1.Node) time.Time {
	if condition(node.Status.Conditions, corev1.NodeReady) == nil {
		return h.seen.Add(startupGracePeriod)
	}
	return h.seen.Add(monitorGracePeriod)
}

// agentConditions holds the conditions that the node's agent reports. NetworkUnavailable is
// reported by the network's control plane.
var agentConditions = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// unknownConditions returns the conditions of a node without heartbeats.
func unknownConditions(node *corev1.Node, now time.Time) []corev1.NodeCondition {
	conditions := slices.Clone(node.Status.Conditions)
	for _, of := range agentConditions {
		switch c := condition(conditions, of); {
		case c == nil:
			conditions = append(conditions, corev1.NodeCondition{
				Type:               of,
				Status:             corev1.ConditionUnknown,
				Reason:             "NodeStatusNeverUpdated",
				Message:            "Kubelet never posted node status.",
				LastHeartbeatTime:  node.CreationTimestamp,
				LastTransitionTime: metav1.NewTime(now),
			})
		case c.Status != corev1.ConditionUnknown:
			c.Status = corev1.ConditionUnknown
			c.Reason = "NodeStatusUnknown"
			c.Message = "Kubelet stopped posting node status."
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
	return conditions
}

// condition returns a pointer into conditions, or nil.
func condition(conditions []corev1.NodeCondition, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// readiness returns the status of the condition Ready, or "".
func readiness(node *corev1.Node) corev1.ConditionStatus {
	if ready := condition(node.Status.Conditions, corev1.NodeReady); ready != nil {
		return ready.Status
	}
	return ""
}
