// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"cmp"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// SetDefaults_HorizontalPodAutoscaler defaults to CPU as the metric, and completes a partial
// behavior.
func SetDefaults_HorizontalPodAutoscaler(obj *autoscalingv2.HorizontalPodAutoscaler) {
	spec := &obj.Spec
	spec.MinReplicas = cmp.Or(spec.MinReplicas, new(int32(1)))
	if len(spec.Metrics) == 0 {
		spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80))}}}}
	}
	if behavior := spec.Behavior; behavior != nil {
		behavior.ScaleUp = orRules(behavior.ScaleUp, new(int32(0)), atMost(autoscalingv2.PodsScalingPolicy, 4), atMost(autoscalingv2.PercentScalingPolicy, 100))
		// The controller has its own default for the stabilization window of scaling down.
		behavior.ScaleDown = orRules(behavior.ScaleDown, nil, atMost(autoscalingv2.PercentScalingPolicy, 100))
	}
}

// atMost limits how many pods, or percent of pods, are added or removed in 15 seconds.
func atMost(kind autoscalingv2.HPAScalingPolicyType, value int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: kind, Value: value, PeriodSeconds: 15}
}

func orRules(rules *autoscalingv2.HPAScalingRules, window *int32, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	rules = cmp.Or(rules, &autoscalingv2.HPAScalingRules{})
	rules.StabilizationWindowSeconds = cmp.Or(rules.StabilizationWindowSeconds, window)
	rules.SelectPolicy = cmp.Or(rules.SelectPolicy, new(autoscalingv2.MaxChangePolicySelect))
	if rules.Policies == nil {
		rules.Policies = policies
	}
	return rules
}
