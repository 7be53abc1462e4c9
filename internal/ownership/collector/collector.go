// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collector is the garbage collector: it shows the API's objects to the
// state machine of package graph and does what that asks for.
//
// One reflector for each resource that can be listed, watched and deleted reads
// metadata straight into the graph; there is no other cache. A pool of workers
// takes one action at a time from the graph and performs it under the graph's
// preconditions: a dependent goes with a single DELETE. Only when a write is
// refused does the collector get the object, to show the graph what is there now.
//
// What is served comes from discovery. The objects that announce new resources,
// CustomResourceDefinitions and APIServices, are watched like everything else,
// and a change to one has discovery read again at once. Every resource stands
// for itself: one that cannot be listed is given up on after a while, and one that
// is gone is forgotten; no other waits for it.
//
// Nothing is kept but what was observed. A collector that is killed between any
// two writes and started again ends in the same state, because what it had begun
// is in the store, as a deletion timestamp and a finalizer.
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

// Name is the collector's identity: the service account in kube-system that it
// acts as.
const Name = "generic-garbage-collector"

// EventSource is the component that the collector's events name, as upstream's do.
const EventSource = "garbage-collector-controller"

// Options are what a Collector needs. Metadata, Discovery, Events and Clock are required.
type Options struct {
	// Metadata reads and writes as the collector. Rate limits are up to the server.
	Metadata metadata.Interface
	// Discovery tells what is served. It must not cache.
	Discovery discovery.ServerResourcesInterface
	// Events records events whose source is EventSource.
	Events record.EventRecorder
	// Clock times retries and refreshes.
	Clock clock.WithTicker

	// Others tells whether others make requests, whom the collector then gives way to. Nil
	// stands for never.
	Others func() bool

	// Records remembers what was collected, and why; nil forgets it.
	Records deletion.Records

	// Workers is the number of requests under way at a time; 0 stands for 48.
	Workers int
	// Ignore are resources that are neither watched nor collected: as owners, their
	// objects are looked up. Nil stands for the two kinds of events, which have no
	// owners and are many.
	Ignore []schema.GroupResource
	// Patience is how long a resource may take to be listed before nothing waits
	// for it any more, and ten times as long as it may answer with errors before
	// that. 0 stands for 30 s. Only foreground and orphaning deletions wait at all.
	Patience time.Duration
	// RefreshPeriod is how often discovery is read though nothing announced a
	// change; 0 stands for 30 s.
	RefreshPeriod time.Duration
}

// Collector is the garbage collector of a cluster.
type Collector struct {
	Options
	ignored map[schema.GroupResource]bool

	mu    sync.Mutex // guards graph
	graph *graph.Graph
	// work is signalled when the graph may have an action. Whoever takes one
	// passes the signal on, so one signal wakes as many workers as there is work.
	work *sync.Cond

	monitors map[schema.GroupResource]*monitor // of the refreshing goroutine alone
	running  sync.WaitGroup
	refresh  chan struct{}

	journal journal
	turns   *turns

	rest    workqueue.TypedDelayingInterface[types.UID]
	backoff workqueue.TypedRateLimiter[types.UID]

	discovered bool // guarded by mu: discovery was read once
	synced     chan struct{}
	syncedOnce sync.Once
}

// New returns a collector that does nothing before Run.
func New(options Options) *Collector {
	if options.Workers == 0 {
		options.Workers = 48
	}
	if options.Others == nil {
		options.Others = func() bool { return false }
	}
	if options.Ignore == nil {
		options.Ignore = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}
	}
	if options.Patience == 0 {
		options.Patience = 30 * time.Second
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
		// What the machine is busy with is a matter of real time, whatever the cluster is told.
		turns: newTurns(clock.RealClock{}, options.Others),
		rest: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[types.UID]{Clock: options.Clock}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, time.Minute),
	}
	for _, gr := range options.Ignore {
		c.ignored[gr] = true
	}
	c.work = sync.NewCond(&c.mu)
	return c
}

// Run collects until ctx ends, and returns when everything it started has
// stopped. A Collector runs once.
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
	c.running.Go(func() { c.keepTellingOfHolds(ctx) })
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

// Synced returns a channel that is closed once every resource was listed, or
// was given up on.
func (c *Collector) Synced() <-chan struct{} { return c.synced }

// View calls f with the graph as it is now. The graph is locked meanwhile.
func (c *Collector) View(f func(*graph.Graph)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.graph)
}

// tell changes the graph and has a worker look for what follows.
func (c *Collector) tell(f func(*graph.Graph)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.graph)
	if c.discovered && c.graph.Complete() {
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
		c.tell(func(g *graph.Graph) {
			if g.Done(action, outcome) {
				c.rest.AddAfter(action.UID, c.backoff.When(action.UID))
			} else {
				c.backoff.Forget(action.UID)
			}
		})
		end()
	}
}

// next waits for an action.
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

// wakeRested brings what failed, or has to be looked up again, back after its delay.
func (c *Collector) wakeRested() {
	for {
		id, shutdown := c.rest.Get()
		if shutdown {
			return
		}
		c.tell(func(g *graph.Graph) {
			if !g.Wake(id) {
				c.backoff.Forget(id)
			}
		})
		c.rest.Done(id)
	}
}

// objectsOf returns a list's items as the graph takes them.
func objectsOf(items []any) []metav1.Object {
	objects := make([]metav1.Object, 0, len(items))
	for _, item := range items {
		if object, ok := item.(metav1.Object); ok {
			objects = append(objects, object)
		}
	}
	return objects
}
