// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// v2 names the type of each target; in v1 it follows from the fields that are set.

func metricToV2(in autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(m.Target), Metric: identifier(m.MetricName, m.Selector), Target: objectTarget(m),
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{Metric: identifier(m.MetricName, m.Selector),
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &m.TargetAverageValue}}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: m.Name, Target: resourceTarget(m.TargetAverageUtilization, m.TargetAverageValue)}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{Name: m.Name, Container: m.Container,
			Target: resourceTarget(m.TargetAverageUtilization, m.TargetAverageValue)}
	}
	if m := in.External; m != nil {
		kind := autoscalingv2.ValueMetricType
		if m.TargetValue == nil {
			kind = autoscalingv2.AverageValueMetricType
		}
		out.External = &autoscalingv2.ExternalMetricSource{Metric: identifier(m.MetricName, m.MetricSelector),
			Target: autoscalingv2.MetricTarget{Type: kind, Value: m.TargetValue, AverageValue: m.TargetAverageValue}}
	}
	return out
}

func identifier(name string, selector *metav1.LabelSelector) autoscalingv2.MetricIdentifier {
	return autoscalingv2.MetricIdentifier{Name: name, Selector: selector}
}

// objectTarget treats a value of 0 beside an average as absent, because v1 cannot omit the value.
func objectTarget(m *autoscalingv1.ObjectMetricSource) autoscalingv2.MetricTarget {
	if m.AverageValue == nil {
		return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &m.TargetValue}
	}
	out := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: m.AverageValue}
	if !m.TargetValue.IsZero() {
		out.Value = &m.TargetValue
	}
	return out
}

func resourceTarget(utilization *int32, average *resource.Quantity) autoscalingv2.MetricTarget {
	kind := autoscalingv2.UtilizationMetricType
	if utilization == nil {
		kind = autoscalingv2.AverageValueMetricType
	}
	return autoscalingv2.MetricTarget{Type: kind, AverageUtilization: utilization, AverageValue: average}
}

func metricFromV2(in autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(m.DescribedObject), MetricName: m.Metric.Name, Selector: m.Metric.Selector,
			TargetValue: ptr.Deref(m.Target.Value, resource.Quantity{}), AverageValue: m.Target.AverageValue,
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{MetricName: m.Metric.Name, Selector: m.Metric.Selector,
			TargetAverageValue: ptr.Deref(m.Target.AverageValue, resource.Quantity{})}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{Name: m.Name, TargetAverageUtilization: m.Target.AverageUtilization, TargetAverageValue: m.Target.AverageValue}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{Name: m.Name, Container: m.Container,
			TargetAverageUtilization: m.Target.AverageUtilization, TargetAverageValue: m.Target.AverageValue}
	}
	if m := in.External; m != nil {
		out.External = &autoscalingv1.ExternalMetricSource{MetricName: m.Metric.Name, MetricSelector: m.Metric.Selector,
			TargetValue: m.Target.Value, TargetAverageValue: m.Target.AverageValue}
	}
	return out
}

func statusToV2(in autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{DescribedObject: autoscalingv2.CrossVersionObjectReference(m.Target), Metric: identifier(m.MetricName, m.Selector),
			Current: autoscalingv2.MetricValueStatus{Value: &m.CurrentValue, AverageValue: m.AverageValue}}
	}
	if m := in.Pods; m != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{Metric: identifier(m.MetricName, m.Selector),
			Current: autoscalingv2.MetricValueStatus{AverageValue: &m.CurrentAverageValue}}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: m.Name,
			Current: autoscalingv2.MetricValueStatus{AverageValue: &m.CurrentAverageValue, AverageUtilization: m.CurrentAverageUtilization}}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container,
			Current: autoscalingv2.MetricValueStatus{AverageValue: &m.CurrentAverageValue, AverageUtilization: m.CurrentAverageUtilization}}
	}
	if m := in.External; m != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{Metric: identifier(m.MetricName, m.MetricSelector),
			Current: autoscalingv2.MetricValueStatus{Value: &m.CurrentValue, AverageValue: m.CurrentAverageValue}}
	}
	return out
}

func statusFromV2(in autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	orZero := func(q *resource.Quantity) resource.Quantity { return ptr.Deref(q, resource.Quantity{}) }
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{Target: autoscalingv1.CrossVersionObjectReference(m.DescribedObject), MetricName: m.Metric.Name, Selector: m.Metric.Selector,
			CurrentValue: orZero(m.Current.Value), AverageValue: m.Current.AverageValue}
	}
	if m := in.Pods; m != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{MetricName: m.Metric.Name, Selector: m.Metric.Selector, CurrentAverageValue: orZero(m.Current.AverageValue)}
	}
	if m := in.Resource; m != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{Name: m.Name, CurrentAverageUtilization: m.Current.AverageUtilization, CurrentAverageValue: orZero(m.Current.AverageValue)}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container,
			CurrentAverageUtilization: m.Current.AverageUtilization, CurrentAverageValue: orZero(m.Current.AverageValue)}
	}
	if m := in.External; m != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{MetricName: m.Metric.Name, MetricSelector: m.Metric.Selector,
			CurrentValue: orZero(m.Current.Value), CurrentAverageValue: m.Current.AverageValue}
	}
	return out
}

func conditionToV2(in autoscalingv1.HorizontalPodAutoscalerCondition) autoscalingv2.HorizontalPodAutoscalerCondition {
	return autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: autoscalingv2.HorizontalPodAutoscalerConditionType(in.Type), Status: in.Status, ObservedGeneration: in.ObservedGeneration,
		LastTransitionTime: in.LastTransitionTime, Reason: in.Reason, Message: in.Message,
	}
}

func conditionFromV2(in autoscalingv2.HorizontalPodAutoscalerCondition) autoscalingv1.HorizontalPodAutoscalerCondition {
	return autoscalingv1.HorizontalPodAutoscalerCondition{
		Type: autoscalingv1.HorizontalPodAutoscalerConditionType(in.Type), Status: in.Status, ObservedGeneration: in.ObservedGeneration,
		LastTransitionTime: in.LastTransitionTime, Reason: in.Reason, Message: in.Message,
	}
}
