// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Graph is the observed ownership graph and the queue of decisions about it.
type Graph struct {
	uids       uidTable
	nodes      map[uid]*node
	resources  map[schema.GroupResource]*resource
	served     map[schema.GroupKind]*resource
	kinds      map[kindRef]*kind
	unverified map[ownerKey]*unverifiedOwner
	lost       map[uid][]metav1.OwnerReference // see noteLost
	holds      map[*node]struct{}              // the nodes on hold

	// nodeQueue holds the nodes to decide about, lookups the unverified owners to look up, and
	// reports the events to record, each in order.
	nodeQueue queue[*node]
	lookups   queue[*unverifiedOwner]
	reports   queue[Action]

	// unlisted counts the watched resources that are not listed yet. parked holds the nodes whose
	// decision waits until all are listed.
	unlisted int
	parked   []*node
}

// New returns an empty graph.
func New() *Graph {
	return &Graph{
		nodes:      map[uid]*node{},
		resources:  map[schema.GroupResource]*resource{},
		served:     map[schema.GroupKind]*resource{},
		kinds:      map[kindRef]*kind{},
		unverified: map[ownerKey]*unverifiedOwner{},
		lost:       map[uid][]metav1.OwnerReference{},
		holds:      map[*node]struct{}{},
	}
}

// node is an object; see the package documentation. There is one for each object of the
// cluster, so TestMemory limits its size.
type node struct {
	uid        uid
	name       string
	version    string // metadata.resourceVersion
	namespace  unique.Handle[string]
	finalizers unique.Handle[string] // joined by a newline
	resource   *resource
	edges      []edge
	dependents []*node // one entry for each distinct owner of the dependent

	// blocking counts the followed edges to this node with blockOwnerDeletion, and
	// blockingWaiting those among them whose dependent waits for its own dependents.
	blocking, blockingWaiting int32

	state nodeState
}

type nodeState uint16

const (
	observed   nodeState = 1 << iota // it was observed, and not deleted since
	tombstone                        // it was observed, and then deleted
	deleting                         // metadata.deletionTimestamp is set
	foreground                       // it has the finalizer foregroundDeletion
	orphan                           // it has the finalizer orphan
	queued                           // it is in the node queue
	parked                           // it is in the list of parked nodes
	acting                           // an action on it is in progress
	backingOff                       // an action on it failed; it waits for Wake
	written                          // a write to it succeeded, but is not observed yet
	held                             // it has the annotation ownership.HoldAnnotation
)

// is reports whether n is in all of the states s.
func (n *node) is(s nodeState) bool { return n.state&s == s }

// isAny reports whether n is in at least one of the states s.
func (n *node) isAny(s nodeState) bool { return n.state&s != 0 }

// isWaiting reports whether n is being deleted in the foreground and waits for its dependents.
func (n *node) isWaiting() bool { return n.is(observed | deleting | foreground) }

// isOrphaning reports whether n is being deleted and its dependents are orphaned.
func (n *node) isOrphaning() bool { return n.is(observed | deleting | orphan) }

// edge is one owner reference of a node.
type edge struct {
	owner      *node
	kind       *kind
	unverified *unverifiedOwner // set if the reference is not followed
	name       string
	index      int32 // of the dependent in owner.dependents; -1 in further edges to the same owner
	state      edgeState
}

type edgeState uint8

const (
	controllerSet  edgeState = 1 << iota // controller is not nil
	controllerTrue                       // controller is true
	blockSet                             // blockOwnerDeletion is not nil
	blockTrue                            // blockOwnerDeletion is true
	followed                             // see the package documentation
	reported                             // the reference to another namespace was reported
)

// is reports whether e is in all of the states s.
func (e *edge) is(s edgeState) bool { return e.state&s == s }

// blocks reports whether a foreground deletion of the owner waits for the dependent.
func (e *edge) blocks() bool { return e.is(followed | blockTrue) }

// kindRef is a kind as owner references name it.
type kindRef struct{ apiVersion, kind string }

// kind is a kindRef with its group and kind, shared by all edges that use it.
type kind struct {
	kindRef
	schema.GroupKind
	edges int
}

// unverifiedOwner is an owner of references that are not followed. Only a live lookup shows whether
// it exists. All edges to the same name and UID in a namespace share one lookup.
type unverifiedOwner struct {
	ownerKey
	owner     *node
	edges     int
	existence existence
}

type ownerKey struct {
	uid uid
	schema.GroupKind
	namespace, name string
}

type existence uint8

const (
	unknown       existence = iota
	lookupPending           // a lookup is queued or in progress
	lookupFailed            // the lookup failed; Wake repeats it
	absent                  // there is no such object and never will be
	exists                  // it exists, but is not watched: only another lookup shows its deletion
	existsWaiting           // like exists, and it waits for its dependents
)

// queue is a FIFO queue.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) pop() (T, bool) {
	var zero T
	if q.head == len(q.items) {
		return zero, false
	}
	item := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.items) && cap(q.items) > 1024:
		q.items, q.head = nil, 0 // A large cascade is over: release its memory.
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head > 1024 && q.head > len(q.items)/2:
		q.items = append([]T(nil), q.items[q.head:]...)
		q.head = 0
	}
	return item, true
}

// enqueue queues n for a decision.
func (g *Graph) enqueue(n *node) {
	if n.is(queued) || !n.is(observed) {
		return
	}
	n.state |= queued
	g.nodeQueue.push(n)
}

func (g *Graph) enqueueDependents(n *node) {
	for _, dependent := range n.dependents {
		g.enqueue(dependent)
	}
}

// ensureNode returns the node of id, and creates a virtual one if there is none.
func (g *Graph) ensureNode(id uid) *node {
	n, ok := g.nodes[id]
	if !ok {
		n = &node{uid: id, namespace: unique.Make(""), finalizers: unique.Make("")}
		g.nodes[id] = n
	}
	return n
}

// dropUnused removes n, unless it is observed or has dependents.
func (g *Graph) dropUnused(n *node) {
	if n.is(observed) || len(n.dependents) > 0 || g.nodes[n.uid] != n {
		return
	}
	delete(g.nodes, n.uid)
	g.uids.forget(n.uid)
}
