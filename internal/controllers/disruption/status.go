// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// deletionTimeout is the time limit for observing the deletion of an evicted pod.
const deletionTimeout = 2 * time.Minute

// needsScale reports whether a budget depends on the scale of the pods' owners.
func needsScale(spec *policyv1.PodDisruptionBudgetSpec) bool {
	return spec.MaxUnavailable != nil || spec.MinAvailable != nil && spec.MinAvailable.Type == intstr.String
}

// requirement returns how many pods a budget expects, and how many of them must be healthy. scale is
// the sum of the scales of the pods' owners.
func requirement(spec *policyv1.PodDisruptionBudgetSpec, selected, scale int) (expected, healthy int, err error) {
	switch {
	case spec.MaxUnavailable != nil:
		unavailable, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, scale, true)
		return scale, max(0, scale-unavailable), err
	case spec.MinAvailable == nil:
		return 0, 0, nil
	case spec.MinAvailable.Type == intstr.Int:
		return selected, int(spec.MinAvailable.IntVal), nil
	}
	healthy, err = intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, scale, true)
	return scale, healthy, err
}

// evicted returns which of the recorded evictions still count, which pods were not deleted in time,
// and when the next eviction will not count any more (0 for never).
func evicted(recorded map[string]metav1.Time, selected []*corev1.Pod, now time.Time) (pending map[string]metav1.Time, kept []*corev1.Pod, next time.Duration) {
	pending = map[string]metav1.Time{}
	for _, pod := range selected {
		at, found := recorded[pod.Name]
		if !found || pod.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(deletionTimeout).Sub(now)
		if left <= 0 {
			kept = append(kept, pod)
			continue
		}
		pending[pod.Name] = at
		if next == 0 || left < next {
			next = left
		}
	}
	return pending, kept, next
}

// statusOf returns the status of a budget.
func statusOf(budget *policyv1.PodDisruptionBudget, selected []*corev1.Pod, pending map[string]metav1.Time, expected, desired int) policyv1.PodDisruptionBudgetStatus {
	out := budget.DeepCopy()
	out.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation,
		ExpectedPods:       int32(expected),
		DesiredHealthy:     int32(desired),
		DisruptedPods:      pending,
		Conditions:         out.Status.Conditions,
	}
	for _, pod := range selected {
		if _, leaves := pending[pod.Name]; !leaves && pod.DeletionTimestamp == nil && pods.IsReady(pod) {
			out.Status.CurrentHealthy++
		}
	}
	// A budget that expects no pods allows none to be disrupted, in case some were just created.
	if expected > 0 {
		out.Status.DisruptionsAllowed = max(0, out.Status.CurrentHealthy-out.Status.DesiredHealthy)
	}
	poddisruptionbudget.UpdateDisruptionAllowedCondition(out)
	return out.Status
}

// failedStatus returns the status of a budget that cannot be computed: it allows no disruption.
func failedStatus(budget *policyv1.PodDisruptionBudget, err error) policyv1.PodDisruptionBudgetStatus {
	status := *budget.Status.DeepCopy()
	status.DisruptionsAllowed = 0
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
		Message: err.Error(), ObservedGeneration: status.ObservedGeneration,
	})
	return status
}
