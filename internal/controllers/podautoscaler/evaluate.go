// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// proposal is what one metric asks for.
type proposal struct {
	replicas int32
	// metric describes the metric in events.
	metric string
	status autoscalingv2.MetricStatus
}

// failure is why a metric cannot be used, and the reason of the event and the condition that say so.
type failure struct {
	reason string
	err    error
}

// subject is what the metrics of one autoscaler are about.
type subject struct {
	source    source
	namespace string
	// spec and status are the replicas of the scale.
	spec, status int32
	selector     labels.Selector
	pods         []*corev1.Pod
	tolerances   tolerances
	now          time.Time
}

// evaluate computes the replicas for one metric. The texts of errors are upstream's.
func (s subject) evaluate(ctx context.Context, spec autoscalingv2.MetricSpec) (proposal, *failure, error) {
	switch spec.Type {
	case autoscalingv2.ObjectMetricSourceType:
		p, err := s.object(spec.Object)
		return done(p, "FailedGetObjectMetric", "failed to get object metric value", err)
	case autoscalingv2.PodsMetricSourceType:
		p, err := s.podsMetric(spec.Pods)
		return done(p, "FailedGetPodsMetric", "failed to get pods metric value", err)
	case autoscalingv2.ResourceMetricSourceType:
		p, current, err := s.resource(ctx, spec.Resource.Name, "", spec.Resource.Target)
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: spec.Resource.Name, Current: current}}
		return done(p, "FailedGetResourceMetric", fmt.Sprintf("failed to get %s resource metric value", spec.Resource.Name), err)
	case autoscalingv2.ContainerResourceMetricSourceType:
		m := spec.ContainerResource
		p, current, err := s.resource(ctx, m.Name, m.Container, m.Target)
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container, Current: current}}
		return done(p, "FailedGetContainerResourceMetric", fmt.Sprintf("failed to get %s container metric value", m.Container), err)
	case autoscalingv2.ExternalMetricSourceType:
		p, err := s.external(spec.External)
		return done(p, "FailedGetExternalMetric", fmt.Sprintf("failed to get %s external metric value", spec.External.Metric.Name), err)
	}
	err := fmt.Errorf("unknown metric source type %q", string(spec.Type))
	return proposal{}, &failure{"InvalidMetricSourceType", err}, err
}

// done returns a proposal, or a failure and the error of the pass, which has a prefix.
func done(p proposal, reason, prefix string, err error) (proposal, *failure, error) {
	if err != nil {
		return proposal{}, &failure{reason, err}, fmt.Errorf("%s: %w", prefix, err)
	}
	return p, nil, nil
}

// resource is a resource that pods use: one container of each, or the whole pods if container is "".
func (s subject) resource(ctx context.Context, name corev1.ResourceName, container string, to autoscalingv2.MetricTarget) (proposal, autoscalingv2.MetricValueStatus, error) {
	var current autoscalingv2.MetricValueStatus
	what, want := "usage", func() (target, error) { return averageTarget(to.AverageValue.MilliValue()), nil }
	described := fmt.Sprintf("%s resource", name)
	switch {
	case to.AverageValue != nil:
	case to.AverageUtilization == nil:
		return proposal{}, current, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	default:
		what, want = "utilization", func() (target, error) {
			requests, err := requestsOf(s.pods, container, name)
			return utilizationTarget{*to.AverageUtilization, requests}, err
		}
		described = fmt.Sprintf("%s resource utilization (percentage of request)", name)
		if container != "" {
			described = fmt.Sprintf("%s container resource utilization (percentage of request)", name)
		}
	}
	used, err := s.source.resource(ctx, s.namespace, s.selector, name, container)
	if err != nil {
		return proposal{}, current, fmt.Errorf("failed to get %s %s: unable to get metrics for resource %s: %w", name, what, name, err)
	}
	replicas, measured, err := forPods(s.spec, s.pods, used, name == corev1.ResourceCPU, want, s.tolerances, s.now)
	if err != nil {
		return proposal{}, current, fmt.Errorf("failed to get %s %s: %w", name, what, err)
	}
	format := resource.DecimalSI
	if name == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	current.AverageValue = resource.NewMilliQuantity(measured.average, format)
	current.AverageUtilization = measured.utilization
	return proposal{replicas: replicas, metric: described}, current, nil
}

// podsMetric is a custom metric of each pod.
func (s subject) podsMetric(m *autoscalingv2.PodsMetricSource) (proposal, error) {
	values, err := s.source.pods(s.namespace, s.selector, m.Metric)
	if err != nil {
		return proposal{}, fmt.Errorf("unable to get metric %s: %w", m.Metric.Name, err)
	}
	want := func() (target, error) { return averageTarget(m.Target.AverageValue.MilliValue()), nil }
	replicas, measured, err := forPods(s.spec, s.pods, values, false, want, s.tolerances, s.now)
	if err != nil {
		return proposal{}, err
	}
	return proposal{
		replicas: replicas, metric: "pods metric " + m.Metric.Name,
		status: autoscalingv2.MetricStatus{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricStatus{
			Metric: m.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: decimal(measured.average)},
		}},
	}, nil
}

// object is a custom metric of one object.
func (s subject) object(m *autoscalingv2.ObjectMetricSource) (proposal, error) {
	byValue := m.Target.Type == autoscalingv2.ValueMetricType && m.Target.Value != nil
	if !byValue && (m.Target.Type != autoscalingv2.AverageValueMetricType || m.Target.AverageValue == nil) {
		return proposal{}, errors.New("invalid object metric source: neither a value target nor an average value target was set")
	}
	usage, err := s.source.object(s.namespace, m.DescribedObject, m.Metric)
	if err != nil {
		err = fmt.Errorf("unable to get metric %s on %s %s/%s: %w", m.Metric.Name, m.DescribedObject.Kind, s.namespace, m.DescribedObject.Name, err)
		if !byValue {
			err = fmt.Errorf("failed to get %s object metric: %w", m.Metric.Name, err)
		}
		return proposal{}, err
	}
	described := fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name)
	if !byValue {
		described = describeExternal(m.Metric)
	}
	replicas, current, err := s.shared(usage, m.Target.Value, m.Target.AverageValue, byValue)
	return proposal{
		replicas: replicas, metric: described,
		status: autoscalingv2.MetricStatus{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricStatus{
			DescribedObject: m.DescribedObject, Metric: m.Metric, Current: current,
		}},
	}, err
}

// external is a metric of something outside of the cluster.
func (s subject) external(m *autoscalingv2.ExternalMetricSource) (proposal, error) {
	byValue := m.Target.AverageValue == nil
	if byValue && m.Target.Value == nil {
		return proposal{}, errors.New("invalid external metric source: neither a value target nor an average value target was set")
	}
	prefix := fmt.Sprintf("failed to get %s external metric", m.Metric.Name)
	if byValue {
		prefix = fmt.Sprintf("failed to get external metric %s", m.Metric.Name)
	}
	usage, err := s.source.external(s.namespace, m.Metric)
	if err != nil {
		return proposal{}, fmt.Errorf("%s: unable to get external metric %s/%s/%+v: %w", prefix, s.namespace, m.Metric.Name, m.Metric.Selector, err)
	}
	replicas, current, err := s.shared(usage, m.Target.Value, m.Target.AverageValue, byValue)
	if err != nil {
		return proposal{}, fmt.Errorf("%s: %w", prefix, err)
	}
	return proposal{
		replicas: replicas, metric: describeExternal(m.Metric),
		status: autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricStatus{
			Metric: m.Metric, Current: current,
		}},
	}, nil
}

// shared computes the replicas for a value that all pods share.
func (s subject) shared(usage int64, value, average *resource.Quantity, byValue bool) (int32, autoscalingv2.MetricValueStatus, error) {
	if byValue {
		replicas, err := forValue(s.spec, usage, value.MilliValue(), s.pods, s.tolerances)
		return replicas, autoscalingv2.MetricValueStatus{Value: decimal(usage)}, err
	}
	replicas, share := forShare(s.status, usage, average.MilliValue(), s.tolerances)
	return replicas, autoscalingv2.MetricValueStatus{AverageValue: decimal(share)}, nil
}

func describeExternal(metric autoscalingv2.MetricIdentifier) string {
	return fmt.Sprintf("external metric %s(%+v)", metric.Name, metric.Selector)
}

func decimal(milli int64) *resource.Quantity {
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}
