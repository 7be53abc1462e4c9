// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Graph is who owns whom, as far as it was observed, and what is to be done about it.
type Graph struct {
	uids      uidTable
	nodes     map[uid]*node
	resources map[schema.GroupResource]*resource
	served    map[schema.GroupKind]*resource
	kinds     map[reference]*kind
	claims    map[claimKey]*claim
	lost      map[uid][]metav1.OwnerReference // see remember
	holds     map[*node]struct{}              // the nodes on hold

	// nodeQueue holds nodes to decide about, lookups the claims to ask the API
	// about and reports the events to send, each in the order they came up.
	nodeQueue queue[*node]
	lookups   queue[*claim]
	reports   queue[Action]

	// unlisted counts the watched resources whose objects are not known yet;
	// parked are the nodes whose decision waits until there are none.
	unlisted int
	parked   []*node
}

// New returns an empty graph.
func New() *Graph {
	return &Graph{
		nodes:     map[uid]*node{},
		resources: map[schema.GroupResource]*resource{},
		served:    map[schema.GroupKind]*resource{},
		kinds:     map[reference]*kind{},
		claims:    map[claimKey]*claim{},
		lost:      map[uid][]metav1.OwnerReference{},
		holds:     map[*node]struct{}{},
	}
}

// node is an object; see the package documentation. Its size is measured by
// BenchmarkMemory: there is one for each object of the cluster.
type node struct {
	uid        uid
	name       string
	version    string // metadata.resourceVersion
	namespace  unique.Handle[string]
	finalizers unique.Handle[string] // joined by a newline
	resource   *resource
	edges      []edge
	dependents []*node // one entry for each distinct owner of the dependent

	// blocking counts the followed edges to this node with blockOwnerDeletion,
	// blockingWaiting those of them whose dependent waits for its own dependents.
	blocking, blockingWaiting int32

	state nodeState
}

type nodeState uint16

const (
	observed   nodeState = 1 << iota // the API showed it, and it was not seen deleted since
	gone                             // it was observed, and is deleted
	deleting                         // metadata.deletionTimestamp is set
	foreground                       // it has the finalizer foregroundDeletion
	orphan                           // it has the finalizer orphan
	queued                           // it is in the node queue
	parked                           // it is in the list of parked nodes
	acting                           // an action on it is under way
	resting                          // an action on it failed; it waits for Wake
	written                          // a write to it was accepted, but is not observed yet
	held                             // it has the annotation ownership.HoldAnnotation
)

func (n *node) is(s nodeState) bool  { return n.state&s != 0 }
func (n *node) has(s nodeState) bool { return n.state&s == s }

// waiting tells whether n is being deleted and waits for its dependents to go first.
func (n *node) waiting() bool { return n.has(observed | deleting | foreground) }

// orphaning tells whether n is being deleted and its dependents are let go.
func (n *node) orphaning() bool { return n.has(observed | deleting | orphan) }

// edge is one owner reference of a node.
type edge struct {
	owner *node
	kind  *kind
	claim *claim // for a reference that is not followed
	name  string
	index int32 // of the dependent in owner.dependents; -1 in further edges to the same owner
	state edgeState
}

type edgeState uint8

const (
	controllerSet  edgeState = 1 << iota // controller is not nil
	controllerTrue                       // controller is true
	blockSet                             // blockOwnerDeletion is not nil
	blockTrue                            // blockOwnerDeletion is true
	followed                             // see the package documentation
	reported                             // the reference into a wrong namespace was reported
)

func (e *edge) is(s edgeState) bool { return e.state&s != 0 }
func (e *edge) blocks() bool        { return e.state&(followed|blockTrue) == followed|blockTrue }

// reference is how an owner reference names a kind.
type reference struct{ apiVersion, kind string }

// kind is a reference, and what it means now.
type kind struct {
	reference
	schema.GroupKind
	edges int
}

// claim is the assertion of a reference that is not followed: under this name
// there is an object with this UID.
type claim struct {
	claimKey
	owner   *node
	edges   int
	verdict verdict
}

type claimKey struct {
	uid uid
	schema.GroupKind
	namespace, name string
}

type verdict uint8

const (
	unknown       verdict = iota
	asked                 // a lookup is queued or under way
	unclear               // the lookup failed, or found an object that is not watched: ask again after Wake
	absent                // no such object, for good
	exists                // it exists, and none of our observations will tell when it ends
	existsWaiting         // it exists and waits for its dependents
)

// queue is a first-in first-out queue.
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
		q.items, q.head = nil, 0 // a great cascade is over: give its memory back
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head > 1024 && q.head > len(q.items)/2:
		q.items = append([]T(nil), q.items[q.head:]...)
		q.head = 0
	}
	return item, true
}

// enqueue asks for a decision about n.
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

// node returns the node of id, a virtual one when there is none yet.
func (g *Graph) node(id uid) *node {
	n, ok := g.nodes[id]
	if !ok {
		n = &node{uid: id, namespace: unique.Make(""), finalizers: unique.Make("")}
		g.nodes[id] = n
	}
	return n
}

// drop forgets n when nothing needs it any more.
func (g *Graph) drop(n *node) {
	if n.is(observed) || len(n.dependents) > 0 || g.nodes[n.uid] != n {
		return
	}
	delete(g.nodes, n.uid)
	g.uids.forget(n.uid)
}
