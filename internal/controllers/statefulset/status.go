// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// status returns the status. Pods that were removed in this pass count as being deleted.
func (v view) status(removed []*corev1.Pod) appsv1.StatefulSetStatus {
	status := appsv1.StatefulSetStatus{
		ObservedGeneration: v.set.Generation,
		CurrentRevision:    v.current.name,
		UpdateRevision:     v.update.name,
		CollisionCount:     v.set.Status.CollisionCount,
		Conditions:         v.set.Status.Conditions,
	}
	for _, r := range slices.Concat(v.replicas, v.surplus) {
		if r.pod != nil {
			v.count(&status, r.pod, slices.Contains(removed, r.pod))
		}
	}
	v.complete(&status)
	return status
}

func (v view) count(status *appsv1.StatefulSetStatus, pod *corev1.Pod, removed bool) {
	status.Replicas++
	if pod.Status.Phase == corev1.PodRunning && pods.IsReady(pod) {
		status.ReadyReplicas++
		if pods.IsAvailable(pod, v.set.Spec.MinReadySeconds, v.now) {
			status.AvailableReplicas++
		}
	}
	if removed || pod.DeletionTimestamp != nil {
		return
	}
	if revisionOf(pod) == v.current.name {
		status.CurrentReplicas++
	}
	if v.isUpdated(pod) {
		status.UpdatedReplicas++
	}
}

// complete makes the update revision the current one if all replicas are updated and ready.
func (v view) complete(status *appsv1.StatefulSetStatus) {
	replicas := int32(len(v.replicas))
	if status.UpdatedReplicas == replicas && status.ReadyReplicas == replicas && status.Replicas == replicas {
		status.CurrentReplicas = status.UpdatedReplicas
		status.CurrentRevision = status.UpdateRevision
	}
}
