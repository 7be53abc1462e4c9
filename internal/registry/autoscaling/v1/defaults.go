// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// SetDefaults_HorizontalPodAutoscaler leaves the metric that is measured by
// default to the conversion, which sees all metrics.
func SetDefaults_HorizontalPodAutoscaler(obj *autoscalingv1.HorizontalPodAutoscaler) {
	obj.Spec.MinReplicas = cmp.Or(obj.Spec.MinReplicas, new(int32(1)))
}
