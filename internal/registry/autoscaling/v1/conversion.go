// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"encoding/json"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// Annotations for fields that v1 does not have.
const (
	metricsAnnotation       = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation       = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation    = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation      = "autoscaling.alpha.kubernetes.io/behavior"
	scaleDownToleranceNoted = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	scaleUpToleranceNoted   = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
)

var carriers = []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation, scaleDownToleranceNoted, scaleUpToleranceNoted}

// defaultUtilization is the default target for CPU, in percent of the requests.
const defaultUtilization = 80

// DropCarriers removes the annotations that have no meaning in v2. It does not change the given map,
// which may be shared.
func DropCarriers(annotations map[string]string) map[string]string {
	out := annotations
	for _, name := range carriers {
		if _, found := out[name]; !found {
			continue
		}
		if len(out) == len(annotations) {
			out = maps.Clone(annotations)
		}
		delete(out, name)
	}
	return out
}

func addConversions(scheme *runtime.Scheme) error {
	for _, add := range []error{
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil), func(from, to any, _ conversion.Scope) error {
			toV2(from.(*autoscalingv1.HorizontalPodAutoscaler), to.(*autoscalingv2.HorizontalPodAutoscaler))
			return nil
		}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), func(from, to any, _ conversion.Scope) error {
			return fromV2(from.(*autoscalingv2.HorizontalPodAutoscaler), to.(*autoscalingv1.HorizontalPodAutoscaler))
		}),
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscalerList)(nil), (*autoscalingv2.HorizontalPodAutoscalerList)(nil), func(from, to any, _ conversion.Scope) error {
			in, out := from.(*autoscalingv1.HorizontalPodAutoscalerList), to.(*autoscalingv2.HorizontalPodAutoscalerList)
			*out = autoscalingv2.HorizontalPodAutoscalerList{ListMeta: in.ListMeta, Items: make([]autoscalingv2.HorizontalPodAutoscaler, len(in.Items))}
			for i := range in.Items {
				toV2(&in.Items[i], &out.Items[i])
			}
			return nil
		}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscalerList)(nil), (*autoscalingv1.HorizontalPodAutoscalerList)(nil), func(from, to any, _ conversion.Scope) error {
			in, out := from.(*autoscalingv2.HorizontalPodAutoscalerList), to.(*autoscalingv1.HorizontalPodAutoscalerList)
			*out = autoscalingv1.HorizontalPodAutoscalerList{ListMeta: in.ListMeta, Items: make([]autoscalingv1.HorizontalPodAutoscaler, len(in.Items))}
			for i := range in.Items {
				if err := fromV2(&in.Items[i], &out.Items[i]); err != nil {
					return err
				}
			}
			return nil
		}),
	} {
		if add != nil {
			return add
		}
	}
	return nil
}

// toV2 also reads the annotations. It ignores malformed ones.
func toV2(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) {
	*out = autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
		},
	}
	out.Annotations = DropCarriers(in.Annotations)
	out.Spec.Metrics = metricsToV2(in)
	var rules behavior
	if carried(in, behaviorAnnotation, &rules) && rules != (behavior{}) {
		out.Spec.Behavior = rules.toV2()
	}
	if current := in.Status.CurrentCPUUtilizationPercentage; current != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(*current)}}}}
	}
	var current []autoscalingv1.MetricStatus
	if carried(in, currentAnnotation, &current) {
		out.Status.CurrentMetrics = each(current, statusToV2)
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if carried(in, conditionsAnnotation, &conditions) {
		out.Status.Conditions = each(conditions, conditionToV2)
	}
}

// metricsToV2 appends the metric that has its own field in v1 to the others.
func metricsToV2(in *autoscalingv1.HorizontalPodAutoscaler) []autoscalingv2.MetricSpec {
	var others []autoscalingv1.MetricSpec
	var out []autoscalingv2.MetricSpec
	if carried(in, metricsAnnotation, &others) {
		out = each(others, metricToV2)
	}
	target := in.Spec.TargetCPUUtilizationPercentage
	if target == nil && len(out) == 0 {
		target = new(int32(defaultUtilization))
	}
	if target == nil {
		return out
	}
	return append(out, autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(*target)}}})
}

func carried(in *autoscalingv1.HorizontalPodAutoscaler, name string, into any) bool {
	text, found := in.Annotations[name]
	return found && json.Unmarshal([]byte(text), into) == nil
}

// fromV2 writes the annotations.
func fromV2(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler) error {
	*out = autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
			CurrentCPUUtilizationPercentage: currentUtilization(in.Status.CurrentMetrics),
		},
	}
	out.Annotations = DropCarriers(in.Annotations)
	others := make([]autoscalingv1.MetricSpec, 0, len(in.Spec.Metrics))
	for i := range in.Spec.Metrics {
		utilization := cpuUtilization(&in.Spec.Metrics[i])
		switch {
		case utilization == nil:
			others = append(others, metricFromV2(in.Spec.Metrics[i]))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = new(*utilization)
		}
	}
	notes := map[string]any{}
	if len(others) > 0 {
		notes[metricsAnnotation] = others
	}
	if current := in.Status.CurrentMetrics; len(current) > 0 {
		notes[currentAnnotation] = each(current, statusFromV2)
	}
	if in.Spec.Behavior != nil {
		notes[behaviorAnnotation] = behaviorFromV2(in.Spec.Behavior)
	}
	if conditions := in.Status.Conditions; len(conditions) > 0 {
		notes[conditionsAnnotation] = each(conditions, conditionFromV2)
	}
	return carry(out, notes)
}

// carry stores each note in its annotation.
func carry(out *autoscalingv1.HorizontalPodAutoscaler, notes map[string]any) error {
	if len(notes) == 0 {
		return nil
	}
	annotations := map[string]string{}
	maps.Copy(annotations, out.Annotations)
	for name, note := range notes {
		text, err := json.Marshal(note)
		if err != nil {
			return err
		}
		annotations[name] = string(text)
	}
	out.Annotations = annotations
	return nil
}

// cpuUtilization returns the CPU target, which has a field in v1; nil for other metrics.
func cpuUtilization(metric *autoscalingv2.MetricSpec) *int32 {
	if r := metric.Resource; metric.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU {
		return r.Target.AverageUtilization
	}
	return nil
}

func currentUtilization(statuses []autoscalingv2.MetricStatus) *int32 {
	var out *int32
	for _, s := range statuses {
		if r := s.Resource; s.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out = new(*r.Current.AverageUtilization)
		}
	}
	return out
}

func each[A, B any](in []A, convert func(A) B) []B {
	out := make([]B, len(in))
	for i := range in {
		out[i] = convert(in[i])
	}
	return out
}
