// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	metricsapi "k8s.io/metrics/pkg/apis/metrics"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kindred-project/kindred/internal/metrics"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// The priorities of metrics.k8s.io, after all other groups: nodes and pods mean core/v1's. Those of
// v1beta1 are metrics-server's, so that its APIService can be applied over ours without a conflict.
const (
	metricsGroupPriority   = 100
	metricsVersionPriority = 101 // of v1
)

// metricsGroup returns the API group metrics.k8s.io.
func metricsGroup(c *metrics.Collector) generic.Group {
	return generic.Group{
		Name:     metricsapi.GroupName,
		Priority: metricsGroupPriority,
		Scheme:   []func(*runtime.Scheme) error{metricsapi.AddToScheme, metricsv1.AddToScheme, metricsv1beta1.AddToScheme},
		Versions: []generic.Version{
			{Name: "v1", Resources: []generic.Resource{
				generic.Transient{Plural: "nodes", Endpoint: metrics.NewNodeMetrics(c)},
				generic.Transient{Plural: "pods", Endpoint: metrics.NewPodMetrics(c)},
			}},
			{Name: "v1beta1", As: metricsv1.SchemeGroupVersion},
		},
	}
}

// newCollector returns the collector of the metrics that nodes report.
func (s *Server) newCollector(c Config, nodes *nodeConnections) *metrics.Collector {
	core := s.informers.Core().V1()
	return metrics.NewCollector(metrics.Options{
		Pods: core.Pods().Lister(), Nodes: core.Nodes().Lister(), Clock: c.Clock,
		Pauses: func() bool { return c.Leadership != nil && !c.Leadership.Leads() },
		Local:  c.SimulatedStats,
		Connect: func(ctx context.Context, node string) (*url.URL, http.RoundTripper, error) {
			return nodes.Agent(ctx, node, false)
		},
	})
}

// collectMetrics collects while metrics.k8s.io is served.
func (s *Server) collectMetrics(ctx context.Context) {
	core := s.informers.Core().V1()
	served := s.installed.Has(metricsv1.SchemeGroupVersion) || s.installed.Has(metricsv1beta1.SchemeGroupVersion)
	if served && cache.WaitForCacheSync(ctx.Done(), core.Nodes().Informer().HasSynced, core.Pods().Informer().HasSynced) {
		s.metrics.Run(ctx)
	}
}
