// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/stats"
)

const (
	// Interval is the time between two samples, and the HorizontalPodAutoscaler's sync period.
	Interval = 15 * time.Second
	// timeout is for one node, in real time.
	timeout = 10 * time.Second
	// atOnce is the number of nodes that are read at a time.
	atOnce = 8
	// path is where nodes report.
	path = "/metrics/resource"
)

// Options are what a Collector depends on.
type Options struct {
	Pods  corelisters.PodLister
	Nodes corelisters.NodeLister
	// Local returns the source of a node in this process, which needs no connection; nil for other nodes. Local may be nil.
	// With 100,000 pods, writing and parsing the text took a fifth of a processor.
	Local func(node string) stats.Source
	// Connect returns where a node's agent serves, and a transport that authenticates to it.
	Connect func(ctx context.Context, node string) (*url.URL, http.RoundTripper, error)
	// Pauses reports whether no samples are to be taken at present, because another server takes them; nil if it never does.
	Pauses func() bool
	Clock  clock.WithTicker
}

// Collector keeps the last samples of all nodes and containers.
type Collector struct {
	options Options

	mu    sync.RWMutex
	nodes map[string]history
}

// NewCollector returns a Collector, which has no samples before Run.
func NewCollector(options Options) *Collector {
	return &Collector{options: options, nodes: map[string]history{}}
}

// Run takes samples until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	ticker := c.options.Clock.NewTicker(Interval)
	defer ticker.Stop()
	for {
		if c.options.Pauses == nil || !c.options.Pauses() {
			c.collect(ctx)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// collect reads all Ready nodes, and drops the samples of others.
func (c *Collector) collect(ctx context.Context) {
	nodes, err := c.options.Nodes.List(labels.Everything())
	if err != nil { // a lister of a cache returns none
		return
	}
	var mu sync.Mutex
	next := map[string]history{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, node := range nodes {
		if !isReady(node) {
			continue
		}
		group.Go(func() error {
			b, err := c.read(ctx, node.Name)
			if err != nil {
				if ctx.Err() == nil {
					klog.FromContext(ctx).V(2).Info("Cannot read the metrics of a node, will retry", "node", node.Name, "err", err)
				}
				return nil
			}
			after := c.history(node.Name).then(b)
			mu.Lock()
			defer mu.Unlock()
			next[node.Name] = after
			return nil
		})
	}
	_ = group.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = next
}

// read takes one sample of a node.
func (c *Collector) read(ctx context.Context, node string) (batch, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if source := c.local(node); source != nil {
		summary, err := source(ctx)
		return batchOf(summary), err
	}
	agent, transport, err := c.options.Connect(ctx, node)
	if err != nil {
		return batch{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, agent.JoinPath(path).String(), nil)
	if err != nil {
		return batch{}, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return batch{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return batch{}, fmt.Errorf("GET %s: %s", request.URL, response.Status)
	}
	return parse(response.Body, c.options.Clock.Now())
}

func (c *Collector) local(node string) stats.Source {
	if c.options.Local == nil {
		return nil
	}
	return c.options.Local(node)
}

func (c *Collector) history(node string) history {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.nodes[node]
}

// node returns the samples of a node itself.
func (c *Collector) node(name string) series { return c.history(name).node }

// pod returns the samples of a pod's containers; nil if there are none.
func (c *Collector) pod(p *v1.Pod) []containerSeries {
	return c.history(p.Spec.NodeName).pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
}

func isReady(node *v1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}
