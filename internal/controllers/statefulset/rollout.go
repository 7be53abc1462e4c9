// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// outdated returns the pods that a rolling update deletes now, from the highest ordinal down to
// the partition, so that at most maxUnavailable replicas are not available (KEP-961).
func (v view) outdated() []*corev1.Pod {
	if v.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return nil
	}
	var broken, running []*corev1.Pod
	for _, r := range slices.Backward(v.replicas[min(v.partition(), len(v.replicas)):]) {
		switch {
		case r.pod == nil || r.pod.DeletionTimestamp != nil || v.isUpdated(r.pod):
		case v.available(r):
			running = append(running, r.pod)
		default:
			broken = append(broken, r.pod)
		}
	}
	unavailable := 0
	for _, r := range v.replicas {
		if !v.available(r) {
			unavailable++
		}
	}
	// Deleting a pod that is not available costs no availability. An ordered StatefulSet does
	// not get here with one.
	budget := max(0, v.maxUnavailable()-unavailable)
	return append(broken, running[:min(budget, len(running))]...)
}

// maxUnavailable is at least 1, also if a percentage is rounded down to 0.
func (v view) maxUnavailable() int {
	rolling := v.set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1
	}
	// Validation refuses what cannot be parsed.
	n, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, len(v.replicas), false)
	if err != nil {
		return 1
	}
	return max(1, n)
}
