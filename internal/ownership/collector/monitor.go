// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// monitor feeds one resource's objects to the graph. It implements the store of a reflector.
type monitor struct {
	collector *Collector
	resource  graph.Resource
	stop      context.CancelFunc
	ctx       context.Context
	// listed is closed after the first list of the resource.
	listed     chan struct{}
	listedOnce sync.Once
	// failing is true if the last list or watch returned an error.
	failing atomic.Bool
}

// relistBackoff is the backoff between attempts to list or watch a resource. It starts low,
// because discovery may show a new resource before its storage is ready.
var relistBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}

// pageSize is the page size of lists. Lists must be paged: while the watch cache of a new resource
// is not ready, the API server serves lists with a limit from the store, and asks other requests to
// retry after a second.
const pageSize = 10_000

// plainLists makes a reflector use LIST instead of a streaming list (KEP-3157), which the API
// server would also ask to retry.
type plainLists struct{}

// IsWatchListSemanticsUnSupported tells reflectors not to use streaming lists.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// monitor starts to watch r if it can be watched.
func (c *Collector) monitor(ctx context.Context, r graph.Resource) *monitor {
	m := &monitor{collector: c, resource: r, listed: make(chan struct{})}
	m.ctx, m.stop = context.WithCancel(ctx)
	if !r.Watched {
		return m
	}
	client := c.Metadata.Resource(r.GroupVersionResource)
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.ResourceVersion == "0" {
				// Do not accept a stale cache: an owner without dependents in the first
				// list may be released because of it.
				options.ResourceVersion = ""
			}
			if options.Limit > 0 {
				options.Limit = pageSize
			}
			list, err := client.List(ctx, options)
			m.tried(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, options)
			m.tried(err)
			return w, err
		},
	}, plainLists{})
	logger := klog.FromContext(ctx)
	backoff := relistBackoff
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, m, cache.ReflectorOptions{
		Name:            Name,
		TypeDescription: r.GroupVersionResource.String(),
		Logger:          &logger,
		Backoff:         &backoff,
	})
	c.running.Go(func() { reflector.RunWithContext(m.ctx) })
	c.running.Go(m.giveUpIfNotListed)
	return m
}

// giveUpIfNotListed gives up on the resource if it is not listed in time: after a tenth of
// ListTimeout if lists return errors, after all of it if they do not return. A later list still
// takes effect.
func (m *monitor) giveUpIfNotListed() {
	early := m.collector.ListTimeout / 10
	if m.wait(early) && (m.failing.Load() || m.wait(m.collector.ListTimeout-early)) {
		klog.Warningf("The garbage collector cannot list %s and no longer waits for it: until it is listed, "+
			"foreground deletions do not wait for dependents of that resource, and orphaning deletions do not orphan them, so that they are collected later", m.gr())
		m.update(func(g *graph.Graph) { g.GiveUp(m.gr()) })
	}
}

// wait waits for d. It returns false at once when the resource is listed or the monitor is stopped.
func (m *monitor) wait(d time.Duration) bool {
	timer := m.collector.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-m.ctx.Done():
		return false
	case <-m.listed:
		return false
	case <-timer.C():
		return true
	}
}

// tried records the result of a list or watch.
func (m *monitor) tried(err error) {
	m.failing.Store(err != nil)
	if apierrors.IsNotFound(err) {
		m.collector.refreshSoon()
	}
}

func (m *monitor) gr() schema.GroupResource { return m.resource.GroupResource() }

// update changes the graph, unless the monitor was stopped.
func (m *monitor) update(f func(*graph.Graph)) {
	m.collector.update(func(g *graph.Graph) {
		if m.ctx.Err() == nil {
			f(g)
		}
	})
}

func (m *monitor) announce() {
	if announcers[m.gr()] {
		m.collector.refreshSoon()
	}
}

// Add, Update, Delete, Replace and Resync make the monitor a cache.ReflectorStore.

func (m *monitor) Add(object any) error {
	if o, ok := object.(metav1.Object); ok {
		m.update(func(g *graph.Graph) { g.Observe(m.gr(), o) })
		m.announce()
	}
	return nil
}

func (m *monitor) Update(object any) error { return m.Add(object) }

func (m *monitor) Delete(object any) error {
	if o, ok := object.(metav1.Object); ok {
		m.update(func(g *graph.Graph) { g.Forget(m.gr(), o) })
		m.announce()
	}
	return nil
}

func (m *monitor) Replace(items []any, resourceVersion string) error {
	objects := objectsOf(items)
	m.update(func(g *graph.Graph) { g.Replace(m.gr(), objects, resourceVersion) })
	m.listedOnce.Do(func() { close(m.listed) })
	m.announce()
	return nil
}

func (m *monitor) Resync() error { return nil }
