// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/kindred-project/kindred/internal/registry/autoscaling/v1"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is autoscaling.
func Group() generic.Group {
	return generic.Group{
		Name:     autoscalingv2.GroupName,
		Priority: 17500,
		Scheme: []func(*runtime.Scheme) error{
			autoscalingv2.AddToScheme, AddToScheme,
			autoscalingv1.AddToScheme, v1.AddToScheme,
		},
		Versions: []generic.Version{
			{Name: "v2", Resources: []generic.Resource{HorizontalPodAutoscaler}},
			{Name: "v1", As: autoscalingv2.SchemeGroupVersion},
		},
	}
}

var specDoc = autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()

// HorizontalPodAutoscaler scales a workload by the metrics of its pods.
var HorizontalPodAutoscaler = generic.Kind[*autoscalingv2.HorizontalPodAutoscaler]{
	Name: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers", ShortNames: []string{"hpa"}, Categories: []string{"all"},
	New:     func() *autoscalingv2.HorizontalPodAutoscaler { return &autoscalingv2.HorizontalPodAutoscaler{} },
	NewList: func() runtime.Object { return &autoscalingv2.HorizontalPodAutoscalerList{} },
	Spec:    func(h *autoscalingv2.HorizontalPodAutoscaler) any { return &h.Spec },
	Status:  func(h *autoscalingv2.HorizontalPodAutoscaler) any { return &h.Status },

	Prepare:      dropCarriers,
	StatusUpdate: generic.Update[*autoscalingv2.HorizontalPodAutoscaler]{Prepare: dropCarriers, Validate: validateAutoscalerStatus},

	Validate:       validateAutoscaler,
	ValidateUpdate: validateAutoscalerUpdate,

	Columns: []generic.Column[*autoscalingv2.HorizontalPodAutoscaler]{
		{Name: "Reference", Description: specDoc["scaleTargetRef"], Cell: func(h *autoscalingv2.HorizontalPodAutoscaler) any {
			return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name
		}},
		{Name: "Targets", Description: specDoc["metrics"], Cell: targetsCell},
		{Name: "MinPods", Description: specDoc["minReplicas"], Cell: func(h *autoscalingv2.HorizontalPodAutoscaler) any {
			if h.Spec.MinReplicas == nil {
				return "<unset>"
			}
			return fmt.Sprint(*h.Spec.MinReplicas)
		}},
		{Name: "MaxPods", Description: specDoc["maxReplicas"], Cell: func(h *autoscalingv2.HorizontalPodAutoscaler) any { return h.Spec.MaxReplicas }},
		{Name: "Replicas", Description: autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"], Cell: func(h *autoscalingv2.HorizontalPodAutoscaler) any { return h.Status.CurrentReplicas }},
	},
}

// dropCarriers removes the annotations that carry fields of v2 in v1.
func dropCarriers(_ context.Context, h, _ *autoscalingv2.HorizontalPodAutoscaler) {
	h.Annotations = v1.DropCarriers(h.Annotations)
}

const (
	unknown    = "<unknown>"
	maxTargets = 2
)

// targetsCell shows the first metrics as current value and target.
func targetsCell(h *autoscalingv2.HorizontalPodAutoscaler) any {
	metrics := h.Spec.Metrics
	if len(metrics) == 0 {
		return "<none>"
	}
	var cells []string
	for i := range min(len(metrics), maxTargets) {
		var status autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			status = h.Status.CurrentMetrics[i]
		}
		cells = append(cells, metricCell(&metrics[i], &status))
	}
	cell := strings.Join(cells, ", ")
	if more := len(metrics) - maxTargets; more > 0 {
		cell += fmt.Sprintf(" + %d more...", more)
	}
	return cell
}

func metricCell(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	var is autoscalingv2.MetricValueStatus
	switch spec.Type {
	case autoscalingv2.ExternalMetricSourceType:
		if status.External != nil {
			is = status.External.Current
		}
		return valueCell(&spec.External.Target, is)
	case autoscalingv2.ObjectMetricSourceType:
		if status.Object != nil {
			is = status.Object.Current
		}
		return valueCell(&spec.Object.Target, is)
	case autoscalingv2.PodsMetricSourceType:
		if status.Pods != nil {
			is = status.Pods.Current
		}
		return quantity(is.AverageValue) + "/" + quantity(spec.Pods.Target.AverageValue)
	case autoscalingv2.ResourceMetricSourceType:
		if status.Resource != nil {
			is = status.Resource.Current
		}
		return resourceCell(string(spec.Resource.Name), &spec.Resource.Target, is)
	case autoscalingv2.ContainerResourceMetricSourceType:
		if status.ContainerResource != nil {
			is = status.ContainerResource.Current
		}
		return resourceCell(string(spec.ContainerResource.Name), &spec.ContainerResource.Target, is)
	}
	return "<unknown type>"
}

func valueCell(target *autoscalingv2.MetricTarget, is autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantity(is.AverageValue) + "/" + quantity(target.AverageValue) + " (avg)"
	}
	return quantity(is.Value) + "/" + quantity(target.Value)
}

func resourceCell(name string, target *autoscalingv2.MetricTarget, is autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return name + ": " + quantity(is.AverageValue) + "/" + quantity(target.AverageValue)
	}
	return name + ": " + percent(is.AverageUtilization, unknown) + "/" + percent(target.AverageUtilization, "<auto>")
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.String()
}

func percent(n *int32, otherwise string) string {
	if n == nil {
		return otherwise
	}
	return fmt.Sprintf("%d%%", *n)
}
