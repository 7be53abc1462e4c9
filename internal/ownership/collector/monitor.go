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

// monitor shows one resource's objects to the graph. It is the store that a
// reflector fills; the graph is what it stores them in.
type monitor struct {
	collector *Collector
	resource  graph.Resource
	stop      context.CancelFunc
	ctx       context.Context
	// listed is closed when the resource was listed for the first time.
	listed     chan struct{}
	listedOnce sync.Once
	// failing tells whether the last attempt to list or watch was refused.
	failing atomic.Bool
}

// relistBackoff spaces the attempts to list or watch a resource. It starts low,
// because discovery may show a new resource before its storage is up.
var relistBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}

// pageSize is how many objects a page of a list has. There must be pages: while the API still
// fills its cache of a new resource, it reads from the store what has a limit, and has others
// come back after a second.
const pageSize = 10_000

// plainLists has a reflector list with a LIST: a WATCH that begins with the objects would be
// one of those others.
type plainLists struct{}

// IsWatchListSemanticsUnSupported is how a reflector asks.
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
				// Not what some cache has, but all that was written before: who has no
				// dependents in the first list may go for that.
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
	c.running.Go(m.beImpatient)
	return m
}

// beImpatient gives up on the resource when it is not listed in time: soon if the
// API answers with errors, late if it does not answer. A list that succeeds
// afterwards is welcome nevertheless.
func (m *monitor) beImpatient() {
	soon := m.collector.Patience / 10
	if m.wait(soon) && (m.failing.Load() || m.wait(m.collector.Patience-soon)) {
		klog.Warningf("The garbage collector cannot list %s, and waits for it no longer: until it is listed, "+
			"a foreground deletion does not wait for dependents of that resource, and an orphaning one does not let them go, so that they are collected later", m.gr())
		m.tell(func(g *graph.Graph) { g.GiveUp(m.gr()) })
	}
}

// wait returns false when the resource was listed, or need not be any more.
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

// tried takes note of what the API said to a list or watch.
func (m *monitor) tried(err error) {
	m.failing.Store(err != nil)
	if apierrors.IsNotFound(err) {
		m.collector.refreshSoon()
	}
}

func (m *monitor) gr() schema.GroupResource { return m.resource.GroupResource() }

// tell changes the graph, unless the monitor was stopped.
func (m *monitor) tell(f func(*graph.Graph)) {
	m.collector.tell(func(g *graph.Graph) {
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
		m.tell(func(g *graph.Graph) { g.Observe(m.gr(), o) })
		m.announce()
	}
	return nil
}

func (m *monitor) Update(object any) error { return m.Add(object) }

func (m *monitor) Delete(object any) error {
	if o, ok := object.(metav1.Object); ok {
		m.tell(func(g *graph.Graph) { g.Forget(m.gr(), o) })
		m.announce()
	}
	return nil
}

func (m *monitor) Replace(items []any, resourceVersion string) error {
	objects := objectsOf(items)
	m.tell(func(g *graph.Graph) { g.Replace(m.gr(), objects, resourceVersion) })
	m.listedOnce.Do(func() { close(m.listed) })
	m.announce()
	return nil
}

func (m *monitor) Resync() error { return nil }
