// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collector is the garbage collector: it feeds the API's objects to the state
// machine of package graph and performs its actions.
//
// One reflector for each resource that can be listed, watched and deleted reads metadata
// directly into the graph; there is no other cache. Workers take actions from the graph
// and perform them with the graph's preconditions. The deletion of a dependent takes a
// single DELETE; only if a write fails its preconditions does the collector get the
// object, to observe its current state.
//
// Discovery says which resources are served. CustomResourceDefinitions and APIServices,
// which announce new resources, are watched like other objects, and a change of one
// triggers discovery at once. Resources are independent: the collector gives up on one
// that cannot be listed, and forgets one that is no longer served, without delaying
// others.
//
// The collector stores nothing itself. If it is killed between two writes and restarted,
// it reaches the same final state, because deletions in progress are visible in the store
// as deletion timestamps and finalizers.
package collector

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// Name is the name of the collector's service account in kube-system.
const Name = "generic-garbage-collector"

// EventSource is the source component of the collector's events, as upstream's.
const EventSource = "garbage-collector-controller"

// Options are the options of a Collector. Metadata, Discovery, Events and Clock are required.
type Options struct {
	// Metadata reads and writes as the collector. It should have no client-side rate limit.
	Metadata metadata.Interface
	// Discovery returns the served resources. It must not cache.
	Discovery discovery.ServerResourcesInterface
	// Served waits until Discovery returns every resource that has stored objects: after a start,
	// custom resources are served later than others. It may be nil.
	Served func(context.Context) error
	// Events records events whose source is EventSource.
	Events record.EventRecorder
	// Clock times retries and refreshes.
	Clock clock.WithTicker

	// Busy reports whether other clients are making requests, to which the collector then yields.
	// If it is nil, the collector never yields.
	Busy func() bool

	// Records stores records of collected objects. It may be nil.
	Records deletion.Records

	// Workers is the number of concurrent requests; the default is 48.
	Workers int
	// Ignore lists resources that are neither watched nor collected. Their objects are
	// looked up if they are owners. The default is the two resources of events, which have
	// no owners and are numerous.
	Ignore []schema.GroupResource
	// ListTimeout is the time after which decisions no longer wait for a resource that has not
	// been listed; a tenth of it if its lists return errors. The default is 30 s. Only
	// foreground and orphaning deletions wait at all.
	ListTimeout time.Duration
	// RefreshPeriod is the period of discovery without announced changes; the default is
	// 30 s.
	RefreshPeriod time.Duration
}

// Collector is the garbage collector of a cluster.
type Collector struct {
	Options
	ignored map[schema.GroupResource]bool

	mu    sync.Mutex // guards graph
	graph *graph.Graph
	// work is signalled when the graph may have an action. A worker that takes one
	// signals again, so that one signal wakes as many workers as there are actions.
	work *sync.Cond

	monitors map[schema.GroupResource]*monitor // only for the discovery goroutine
	running  sync.WaitGroup
	refresh  chan struct{}

	journal journal
	turns   *turns

	rest    workqueue.TypedDelayingInterface[types.UID]
	backoff workqueue.TypedRateLimiter[types.UID]

	synced     chan struct{}
	syncedOnce sync.Once
}

// New returns a collector. It does nothing before Run.
func New(options Options) *Collector {
	if options.Workers == 0 {
		options.Workers = 48
	}
	if options.Served == nil {
		options.Served = func(context.Context) error { return nil }
	}
	if options.Busy == nil {
		options.Busy = func() bool { return false }
	}
	if options.Ignore == nil {
		options.Ignore = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}
	}
	if options.ListTimeout == 0 {
		options.ListTimeout = 30 * time.Second
	}
	if options.RefreshPeriod == 0 {
		options.RefreshPeriod = 30 * time.Second
	}
	c := &Collector{
		Options:  options,
		ignored:  map[schema.GroupResource]bool{},
		graph:    graph.New(),
		monitors: map[schema.GroupResource]*monitor{},
		refresh:  make(chan struct{}, 1),
		synced:   make(chan struct{}),
		journal:  journal{full: make(chan struct{}, 1)},
		// The load of the machine is measured in real time, even under a fake clock.
		turns: newTurns(clock.RealClock{}, options.Busy),
		rest: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[types.UID]{Clock: options.Clock}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, time.Minute),
	}
	for _, gr := range options.Ignore {
		c.ignored[gr] = true
	}
	c.graph.Discovering()
	c.work = sync.NewCond(&c.mu)
	return c
}

// Run collects until ctx ends. It returns when all its goroutines have stopped, and may be
// called only once.
func (c *Collector) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName(Name))
	stop := context.AfterFunc(ctx, func() {
		c.rest.ShutDown()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.work.Broadcast()
	})
	defer stop()

	c.running.Go(func() { c.keepDiscovering(ctx) })
	c.running.Go(c.wakeRested)
	c.running.Go(func() { c.reportHoldsPeriodically(ctx) })
	if c.Records != nil {
		c.running.Go(func() { c.keepRecords(ctx) })
		defer func() { c.recordLast(ctx) }()
	}
	for range c.Workers {
		c.running.Go(func() { c.collect(ctx) })
	}
	<-ctx.Done()
	c.running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Synced returns a channel that is closed when every resource was listed or given up on.
func (c *Collector) Synced() <-chan struct{} { return c.synced }

// View calls f with the graph, which is locked during the call.
func (c *Collector) View(f func(*graph.Graph)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.graph)
}

// update changes the graph and wakes a worker for the actions that follow.
func (c *Collector) update(f func(*graph.Graph)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.graph)
	if c.graph.Complete() {
		c.syncedOnce.Do(func() { close(c.synced) })
	}
	c.work.Signal()
}

// collect is a worker: it performs actions until ctx ends.
func (c *Collector) collect(ctx context.Context) {
	for {
		action, ok := c.next(ctx)
		if !ok {
			return
		}
		if action.Verb == graph.Report {
			c.report(action)
			continue
		}
		end := c.turns.take(ctx)
		outcome := c.perform(ctx, action)
		c.remember(action, outcome)
		c.update(func(g *graph.Graph) {
			if g.Done(action, outcome) {
				c.rest.AddAfter(action.UID, c.backoff.When(action.UID))
			} else {
				c.backoff.Forget(action.UID)
			}
		})
		end()
	}
}

// next waits for the next action. It returns false when ctx ends.
func (c *Collector) next(ctx context.Context) (graph.Action, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ctx.Err() == nil {
		if action, ok := c.graph.Next(); ok {
			c.work.Signal()
			return action, true
		}
		c.work.Wait()
	}
	return graph.Action{}, false
}

// wakeRested wakes objects after their backoff.
func (c *Collector) wakeRested() {
	for {
		id, shutdown := c.rest.Get()
		if shutdown {
			return
		}
		c.update(func(g *graph.Graph) {
			if !g.Wake(id) {
				c.backoff.Forget(id)
			}
		})
		c.rest.Done(id)
	}
}

// objectsOf converts the items of a list.
func objectsOf(items []any) []metav1.Object {
	objects := make([]metav1.Object, 0, len(items))
	for _, item := range items {
		if object, ok := item.(metav1.Object); ok {
			objects = append(objects, object)
		}
	}
	return objects
}
