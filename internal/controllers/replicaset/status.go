// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// statusOf returns the status: the pods as they were before this Reconcile, and its failure.
func statusOf(rs *appsv1.ReplicaSet, active []*corev1.Pod, failure error, now time.Time) appsv1.ReplicaSetStatus {
	status := appsv1.ReplicaSetStatus{
		Replicas:           int32(len(active)),
		ObservedGeneration: rs.Generation,
		Conditions:         slices.Clone(rs.Status.Conditions),
	}
	template := labels.Set(rs.Spec.Template.Labels).AsSelectorPreValidated()
	for _, pod := range active {
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if pods.IsReady(pod) {
			status.ReadyReplicas++
		}
		if pods.IsAvailable(pod, rs.Spec.MinReadySeconds, now) {
			status.AvailableReplicas++
		}
	}
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	failed := slices.ContainsFunc(status.Conditions, isFailure)
	switch {
	case failure == nil && failed:
		status.Conditions = slices.DeleteFunc(status.Conditions, isFailure)
	case failure != nil && !failed:
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type:               appsv1.ReplicaSetReplicaFailure,
			Status:             corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now),
			Reason:             failureReason(len(active), desired(rs)),
			Message:            failure.Error(),
		})
	}
	return status
}

func failureReason(have, want int) string {
	switch {
	case have < want:
		return pods.FailedCreate
	case have > want:
		return pods.FailedDelete
	default:
		return ""
	}
}

// desired returns spec.replicas, which the API defaults to 1.
func desired(rs *appsv1.ReplicaSet) int {
	return int(ptr.Deref(rs.Spec.Replicas, 1))
}
