// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/resourcename"
)

// metrics checks the metrics. An autoscaler that scales from zero needs an object or external
// metric, because pods that do not exist use nothing.
func (c checker) metrics(metrics []autoscalingv2.MetricSpec, fromZero bool, path *field.Path) {
	elsewhere := false
	for i := range metrics {
		c.metric(&metrics[i], path.Index(i))
		elsewhere = elsewhere || metrics[i].Type == autoscalingv2.ObjectMetricSourceType || metrics[i].Type == autoscalingv2.ExternalMetricSourceType
	}
	if fromZero && !elsewhere {
		c.Forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas")
	}
}

// source is a field of a metric. The metric's type names the one that must be set.
type source struct {
	field string
	check func(path *field.Path)
}

var sourceTypes = []autoscalingv2.MetricSourceType{
	autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
	autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
}

var sourceFields = map[autoscalingv2.MetricSourceType]string{
	autoscalingv2.ObjectMetricSourceType: "object", autoscalingv2.ExternalMetricSourceType: "external", autoscalingv2.PodsMetricSourceType: "pods",
	autoscalingv2.ResourceMetricSourceType: "resource", autoscalingv2.ContainerResourceMetricSourceType: "containerResource",
}

func (c checker) metric(metric *autoscalingv2.MetricSpec, path *field.Path) {
	expected, known := sourceFields[metric.Type]
	if metric.Type == "" {
		c.Required(path.Child("type"), "must specify a metric source type")
	}
	check.OneOf(c, path.Child("type"), metric.Type, sourceTypes...)
	sources := c.sources(metric)
	if len(sources) > 0 {
		sources[0].check(path.Child(sources[0].field))
	}
	if known && !slices.ContainsFunc(sources, func(s source) bool { return s.field == expected }) {
		c.Required(path.Child(expected), "must populate information for the given metric source")
	}
	check.OneOf(c, path.Child("type"), metric.Type, sourceTypes...) // upstream reports it twice
	if len(sources) == 1 {
		return
	}
	for _, s := range sources {
		if s.field != expected {
			c.Forbidden(path.Child(s.field), "must populate the given metric source only")
		}
	}
}

// sources are the fields that are set.
func (c checker) sources(metric *autoscalingv2.MetricSpec) []source {
	var out []source
	if m := metric.Object; m != nil {
		out = append(out, source{field: "object", check: func(path *field.Path) { c.object(m, path) }})
	}
	if m := metric.External; m != nil {
		out = append(out, source{field: "external", check: func(path *field.Path) { c.external(m, path) }})
	}
	if m := metric.Pods; m != nil {
		out = append(out, source{field: "pods", check: func(path *field.Path) { c.pods(m, path) }})
	}
	if m := metric.Resource; m != nil {
		out = append(out, source{field: "resource", check: func(path *field.Path) {
			c.named(string(m.Name), "must specify a resource name", path.Child("name"))
			c.usage(&m.Target, path.Child("target"))
		}})
	}
	if m := metric.ContainerResource; m != nil {
		out = append(out, source{field: "containerResource", check: func(path *field.Path) { c.containerResource(m, path) }})
	}
	return out
}

func (c checker) named(name, missing string, path *field.Path) bool {
	if name == "" {
		c.Required(path, missing)
	}
	return name != ""
}

func (c checker) object(m *autoscalingv2.ObjectMetricSource, path *field.Path) {
	c.reference(m.DescribedObject, c.objectVersion, path.Child("describedObject"))
	c.segment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	c.target(&m.Target, path.Child("target"))
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		c.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue")
	}
}

func (c checker) external(m *autoscalingv2.ExternalMetricSource, path *field.Path) {
	c.segment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	c.target(&m.Target, path.Child("target"))
	switch value, average := m.Target.Value != nil, m.Target.AverageValue != nil; {
	case !value && !average:
		c.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target")
	case value && average:
		c.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target")
	}
}

func (c checker) pods(m *autoscalingv2.PodsMetricSource, path *field.Path) {
	c.segment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	c.target(&m.Target, path.Child("target"))
	if m.Target.AverageValue == nil {
		c.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue")
	}
}

func (c checker) containerResource(m *autoscalingv2.ContainerResourceMetricSource, path *field.Path) {
	if c.named(string(m.Name), "must specify a resource name", path.Child("name")) {
		resourcename.ValidateForContainer(c.Checker, m.Name, path.Child("name"))
	}
	if c.named(m.Container, "must specify a container", path.Child("container")) {
		c.DNSLabel(path.Child("container"), m.Container)
	}
	c.usage(&m.Target, path.Child("target"))
}

// usage checks a target for the resource usage of pods: an amount, or a percentage of
// their requests.
func (c checker) usage(target *autoscalingv2.MetricTarget, path *field.Path) {
	c.target(target, path)
	switch share, amount := target.AverageUtilization != nil, target.AverageValue != nil; {
	case !share && !amount:
		c.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization")
	case share && amount:
		c.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization")
	}
}

func (c checker) target(target *autoscalingv2.MetricTarget, path *field.Path) {
	types := []autoscalingv2.MetricTargetType{autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType}
	c.named(string(target.Type), "must specify a metric target type", path.Child("type"))
	if !slices.Contains(types, target.Type) {
		c.Invalid(path.Child("type"), target.Type, "must be either Utilization, Value, or AverageValue")
	}
	if target.Value != nil && target.Value.Sign() != 1 {
		c.Invalid(path.Child("value"), target.Value, "must be positive")
	}
	if target.AverageValue != nil && target.AverageValue.Sign() != 1 {
		c.Invalid(path.Child("averageValue"), target.AverageValue, "must be positive")
	}
	if target.AverageUtilization != nil && *target.AverageUtilization < 1 {
		c.Invalid(path.Child("averageUtilization"), *target.AverageUtilization, "must be greater than 0")
	}
}
