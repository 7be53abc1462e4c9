// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Nodes runs simulated nodes.
type Nodes struct {
	options     Options
	allocations *allocations
	queue       workqueue.TypedRateLimitingInterface[types.NamespacedName]
	registered  chan struct{}
	pods        cache.SharedIndexInformer
	members     cache.SharedIndexInformer
	usage       usage

	mu     sync.Mutex
	index  map[string]int // node name to number
	nodes  map[string]*v1.Node
	leases []*coordinationv1.Lease
	models map[types.NamespacedName]*model
}

// nodeIndex is the index of pods by the name of their node.
const nodeIndex = "simulated:spec.nodeName"

func nodeOf(object any) ([]string, error) {
	if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// The pauses between attempts to write a pod's status.
const (
	retryFirst = 5 * time.Millisecond
	retryMax   = 10 * time.Second
)

// New returns Nodes, which do nothing before Run.
func New(o Options) (*Nodes, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Nodes{
		options:     o,
		allocations: newAllocations(podAddresses...),
		registered:  make(chan struct{}),
		pods:        o.Informers.Core().V1().Pods().Informer(),
		members:     o.Informers.Core().V1().Nodes().Informer(),
		usage:       newUsage(),
		index:       map[string]int{},
		nodes:       map[string]*v1.Node{},
		leases:      make([]*coordinationv1.Lease, o.Count),
		models:      map[types.NamespacedName]*model{},
	}
	// The informer has the index already if Nodes ran before.
	if _, indexed := n.pods.GetIndexer().GetIndexers()[nodeIndex]; !indexed {
		if err := n.pods.AddIndexers(cache.Indexers{nodeIndex: nodeOf}); err != nil {
			return nil, fmt.Errorf("indexing pods: %w", err)
		}
	}
	for i := range o.Count {
		n.index[o.nodeName(i)] = i
	}
	return n, nil
}

// Registered is closed once all nodes are registered and Ready.
func (n *Nodes) Registered() <-chan struct{} { return n.registered }

// Run registers the nodes and runs their pods until ctx ends. Nodes and pods stay in the API. The next Run
// takes them over.
func (n *Nodes) Run(ctx context.Context) error {
	n.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMax),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "simulated-nodes", Clock: n.options.Clock})
	defer n.queue.ShutDown()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if err := n.register(ctx); err != nil {
		return err
	}
	close(n.registered)
	synced, unregister, err := n.watch(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the informers have stopped as well
	case err != nil:
		return err
	}
	defer unregister()
	running.Go(func() { n.heartbeats(ctx) })
	// Wait until all pods have been seen, so that their addresses are not allocated again.
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	n.forgetMissing()
	for range n.options.Workers {
		running.Go(func() {
			for n.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	n.queue.ShutDown()
	return nil
}

// watch registers event handlers for pods and nodes, until unregister is called.
func (n *Nodes) watch(ctx context.Context) (synced []cache.DoneChecker, unregister func(), err error) {
	pods, err := n.pods.AddEventHandler(n.podHandler())
	if err != nil {
		return nil, nil, fmt.Errorf("watching pods: %w", err)
	}
	members, err := n.members.AddEventHandler(n.nodeHandler(ctx))
	if err != nil {
		_ = n.pods.RemoveEventHandler(pods)
		return nil, nil, fmt.Errorf("watching nodes: %w", err)
	}
	unregister = func() {
		// An informer that has stopped has no handlers to remove.
		_ = n.pods.RemoveEventHandler(pods)
		_ = n.members.RemoveEventHandler(members)
	}
	return []cache.DoneChecker{pods.HasSyncedChecker(), members.HasSyncedChecker()}, unregister, nil
}

func (n *Nodes) nodeHandler(ctx context.Context) cache.ResourceEventHandler {
	see := func(obj any) {
		node, ok := obj.(*v1.Node)
		if !ok {
			return
		}
		n.mu.Lock()
		i, known := n.index[node.Name]
		n.mu.Unlock()
		if known {
			n.remember(i, node)
			n.repair(ctx, node.Name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, obj any) { see(obj) },
		DeleteFunc: func(obj any) {
			if final, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = final.Obj
			}
			if node, ok := obj.(*v1.Node); ok {
				n.forget(node)
			}
		},
	}
}

func (n *Nodes) node(name string) *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[name]
}

func (n *Nodes) remember(i int, node *v1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[n.options.nodeName(i)] = node
}

func (n *Nodes) forget(node *v1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.nodes[node.Name]; known != nil && known.UID == node.UID {
		delete(n.nodes, node.Name)
	}
}

// forgetMissing drops nodes that were deleted between their registration and the start of the watch. If
// the cache is only late, its event adds them again.
func (n *Nodes) forgetMissing() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.nodes {
		if _, there, err := n.members.GetStore().GetByKey(name); err == nil && !there {
			delete(n.nodes, name)
		}
	}
}

func (n *Nodes) lease(i int) *coordinationv1.Lease {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leases[i]
}
