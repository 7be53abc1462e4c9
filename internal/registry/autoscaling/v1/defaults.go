// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// SetDefaults_HorizontalPodAutoscaler does not set the default metric. The conversion does, because
// it knows all metrics.
func SetDefaults_HorizontalPodAutoscaler(obj *autoscalingv1.HorizontalPodAutoscaler) {
	obj.Spec.MinReplicas = cmp.Or(obj.Spec.MinReplicas, new(int32(1)))
}
