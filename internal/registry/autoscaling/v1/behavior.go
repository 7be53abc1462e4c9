// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

// behavior is the behavior of v2 in an annotation, whose keys are the names of Go fields.
type behavior struct {
	ScaleUp   *rules
	ScaleDown *rules
}

type rules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policy
	Tolerance                  *resource.Quantity
}

type policy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func (b *behavior) toV2() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: b.ScaleUp.toV2(), ScaleDown: b.ScaleDown.toV2()}
}

func (r *rules) toV2() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	if r.Policies != nil {
		out.Policies = each(r.Policies, func(p policy) autoscalingv2.HPAScalingPolicy { return autoscalingv2.HPAScalingPolicy(p) })
	}
	return out
}

func behaviorFromV2(b *autoscalingv2.HorizontalPodAutoscalerBehavior) behavior {
	return behavior{ScaleUp: rulesFromV2(b.ScaleUp), ScaleDown: rulesFromV2(b.ScaleDown)}
}

func rulesFromV2(r *autoscalingv2.HPAScalingRules) *rules {
	if r == nil {
		return nil
	}
	out := &rules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	if r.Policies != nil {
		out.Policies = each(r.Policies, func(p autoscalingv2.HPAScalingPolicy) policy { return policy(p) })
	}
	return out
}
