// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// source reads metrics. Values are in thousandths. The metric selectors may be nil.
type source interface {
	// resource returns what the pods use: one container of each, or all if container is "".
	resource(ctx context.Context, namespace string, pods labels.Selector, resource corev1.ResourceName, container string) (samples, error)
	// pods returns a metric of the pods.
	pods(namespace string, pods labels.Selector, metric autoscalingv2.MetricIdentifier) (samples, error)
	// object returns a metric of one object.
	object(namespace string, of autoscalingv2.CrossVersionObjectReference, metric autoscalingv2.MetricIdentifier) (int64, error)
	// external returns the sum of a metric of something outside of the cluster.
	external(namespace string, metric autoscalingv2.MetricIdentifier) (int64, error)
}

// apis reads the three metrics APIs, whoever serves them.
type apis struct {
	usage  resourceclient.PodMetricsesGetter
	custom customclient.CustomMetricsClient
	others externalclient.ExternalMetricsClient
}

// newAPIs returns the clients. Which version of custom.metrics.k8s.io is served is asked again at each
// interval, because adapters come and go.
func newAPIs(env control.Env) (*apis, error) {
	usage, err := resourceclient.NewForConfig(env.Config)
	if err != nil {
		return nil, err
	}
	// Not every adapter speaks protobuf.
	config := rest.CopyConfig(env.Config)
	config.ContentType, config.AcceptContentTypes = "application/json", ""
	others, err := externalclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	versions := customclient.NewAvailableAPIsGetter(env.Discovery)
	if err := env.Every(interval, func(context.Context) error {
		versions.Invalidate()
		return nil
	}); err != nil {
		return nil, err
	}
	return &apis{usage: usage, custom: customclient.NewForConfig(config, env.Manager.GetRESTMapper(), versions), others: others}, nil
}

func (a *apis) resource(ctx context.Context, namespace string, pods labels.Selector, resource corev1.ResourceName, container string) (samples, error) {
	list, err := a.usage.PodMetricses(namespace).List(ctx, metav1.ListOptions{LabelSelector: pods.String()})
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	found := samples{}
	for i := range list.Items {
		m := &list.Items[i]
		if value, ok := usageOf(m.Containers, resource, container); ok {
			found[m.Name] = sample{at: m.Timestamp.Time, window: m.Window.Duration, value: value}
		}
	}
	return found, nil
}

// usageOf returns what one or all containers use. All must have been measured.
func usageOf(containers []metricsv1beta1.ContainerMetrics, resource corev1.ResourceName, container string) (int64, bool) {
	total, measured := int64(0), false
	for _, c := range containers {
		if container != "" && container != c.Name {
			continue
		}
		usage, ok := c.Usage[resource]
		if !ok {
			return 0, false
		}
		total, measured = total+usage.MilliValue(), true
	}
	return total, measured
}

// customWindow is the window of samples that an adapter gives none.
const customWindow = time.Minute

func (a *apis) pods(namespace string, pods labels.Selector, metric autoscalingv2.MetricIdentifier) (samples, error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return nil, err
	}
	list, err := a.custom.NamespacedMetrics(namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, pods, metric.Name, selector)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	found := samples{}
	for _, m := range list.Items {
		window := customWindow
		if m.WindowSeconds != nil {
			window = time.Duration(*m.WindowSeconds) * time.Second
		}
		found[m.DescribedObject.Name] = sample{at: m.Timestamp.Time, window: window, value: m.Value.MilliValue()}
	}
	return found, nil
}

func (a *apis) object(namespace string, of autoscalingv2.CrossVersionObjectReference, metric autoscalingv2.MetricIdentifier) (int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return 0, err
	}
	kind := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind).GroupKind()
	from, name := a.custom.NamespacedMetrics(namespace), of.Name
	if kind == (schema.GroupKind{Kind: "Namespace"}) {
		// Always the autoscaler's own namespace: a reference does not leave it.
		from, name = a.custom.RootScopedMetrics(), namespace
	}
	value, err := from.GetForObject(kind, name, metric.Name, selector)
	if err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	return value.Value.MilliValue(), nil
}

func (a *apis) external(namespace string, metric autoscalingv2.MetricIdentifier) (int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return 0, err
	}
	list, err := a.others.NamespacedMetrics(namespace).List(metric.Name, selector)
	if err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	total := int64(0)
	for _, m := range list.Items {
		value := m.Value.MilliValue()
		if value > 0 && total > math.MaxInt64-value {
			return math.MaxInt64, nil
		}
		total += value
	}
	return total, nil
}
