// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/metrics/pkg/apis/metrics"
)

// endpoint is what both resources share: get and list, as metrics-server serves them.
type endpoint struct{ *Collector }

// Destroy implements rest.Storage.
func (endpoint) Destroy() {}

// GetSingularName implements rest.SingularNameProvider. There is none, because pod and node are core/v1's.
func (endpoint) GetSingularName() string { return "" }

// selected reports whether a list's selectors match an object.
func selected(options *metainternalversion.ListOptions, object metav1.Object) bool {
	if options == nil {
		return true
	}
	if options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(object.GetLabels())) {
		return false
	}
	return options.FieldSelector == nil ||
		options.FieldSelector.Matches(fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()})
}

// PodMetrics is the resource pods.
type PodMetrics struct{ endpoint }

var (
	_ rest.Getter         = PodMetrics{}
	_ rest.Lister         = PodMetrics{}
	_ rest.Scoper         = PodMetrics{}
	_ rest.TableConvertor = PodMetrics{}
)

// NewPodMetrics returns the endpoint.
func NewPodMetrics(c *Collector) PodMetrics { return PodMetrics{endpoint{c}} }

// New implements rest.Storage.
func (PodMetrics) New() runtime.Object { return &metrics.PodMetrics{} }

// NewList implements rest.Lister.
func (PodMetrics) NewList() runtime.Object { return &metrics.PodMetricsList{} }

// NamespaceScoped implements rest.Scoper.
func (PodMetrics) NamespaceScoped() bool { return true }

// Get implements rest.Getter.
func (e PodMetrics) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	namespace := request.NamespaceValue(ctx)
	p, err := e.options.Pods.Pods(namespace).Get(name)
	if err != nil {
		return nil, err
	}
	m := e.metricsOf(p)
	if m == nil {
		return nil, apierrors.NewNotFound(metrics.Resource("podmetrics"), namespace+"/"+name)
	}
	return m, nil
}

// List implements rest.Lister.
func (e PodMetrics) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	pods, err := e.options.Pods.Pods(request.NamespaceValue(ctx)).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return !selected(options, p) })
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	list := &metrics.PodMetricsList{Items: []metrics.PodMetrics{}}
	for _, p := range pods {
		if m := e.metricsOf(p); m != nil {
			list.Items = append(list.Items, *m)
		}
	}
	return list, nil
}

// metricsOf returns what a pod uses; nil unless it is running and all of its measured containers have
// two samples.
func (e PodMetrics) metricsOf(p *v1.Pod) *metrics.PodMetrics {
	samples := e.pod(p)
	if p.Status.Phase != v1.PodRunning || len(samples) == 0 {
		return nil
	}
	m := &metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, CreationTimestamp: metav1.NewTime(e.options.Clock.Now()),
	}}
	for _, s := range samples {
		if s.window() <= 0 {
			return nil
		}
		m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: s.container, Usage: s.usage()})
		// The pod's time is that of the container that was measured first.
		if m.Timestamp.IsZero() || s.last.at.Before(m.Timestamp.Time) {
			m.Timestamp, m.Window = metav1.NewTime(s.last.at), metav1.Duration{Duration: s.window()}
		}
	}
	slices.SortFunc(m.Containers, func(a, b metrics.ContainerMetrics) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

// ConvertToTable implements rest.TableConvertor.
func (PodMetrics) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	switch object := object.(type) {
	case *metrics.PodMetrics:
		return podTable(*object), nil
	case *metrics.PodMetricsList:
		return podTable(object.Items...), nil
	}
	return &metav1.Table{}, nil
}

// NodeMetrics is the resource nodes.
type NodeMetrics struct{ endpoint }

var (
	_ rest.Getter         = NodeMetrics{}
	_ rest.Lister         = NodeMetrics{}
	_ rest.Scoper         = NodeMetrics{}
	_ rest.TableConvertor = NodeMetrics{}
)

// NewNodeMetrics returns the endpoint.
func NewNodeMetrics(c *Collector) NodeMetrics { return NodeMetrics{endpoint{c}} }

// New implements rest.Storage.
func (NodeMetrics) New() runtime.Object { return &metrics.NodeMetrics{} }

// NewList implements rest.Lister.
func (NodeMetrics) NewList() runtime.Object { return &metrics.NodeMetricsList{} }

// NamespaceScoped implements rest.Scoper.
func (NodeMetrics) NamespaceScoped() bool { return false }

// Get implements rest.Getter.
func (e NodeMetrics) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	node, err := e.options.Nodes.Get(name)
	if err != nil {
		return nil, err
	}
	m := e.metricsOf(node)
	if m == nil {
		return nil, apierrors.NewNotFound(metrics.Resource("nodemetrics"), name)
	}
	return m, nil
}

// List implements rest.Lister.
func (e NodeMetrics) List(_ context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	nodes, err := e.options.Nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	nodes = slices.DeleteFunc(nodes, func(n *v1.Node) bool { return !selected(options, n) })
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	list := &metrics.NodeMetricsList{Items: []metrics.NodeMetrics{}}
	for _, node := range nodes {
		if m := e.metricsOf(node); m != nil {
			list.Items = append(list.Items, *m)
		}
	}
	return list, nil
}

func (e NodeMetrics) metricsOf(node *v1.Node) *metrics.NodeMetrics {
	s := e.node(node.Name)
	if s.window() <= 0 {
		return nil
	}
	return &metrics.NodeMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, CreationTimestamp: metav1.NewTime(e.options.Clock.Now())},
		Timestamp:  metav1.NewTime(s.last.at), Window: metav1.Duration{Duration: s.window()}, Usage: s.usage(),
	}
}

// ConvertToTable implements rest.TableConvertor.
func (NodeMetrics) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	switch object := object.(type) {
	case *metrics.NodeMetrics:
		return nodeTable(*object), nil
	case *metrics.NodeMetricsList:
		return nodeTable(object.Items...), nil
	}
	return &metav1.Table{}, nil
}
