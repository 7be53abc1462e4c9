// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Next decides and returns the next action. The caller reports the result of each action
// except Report to [Graph.Done]; until then Next returns no other action on the same object.
func (g *Graph) Next() (Action, bool) {
	if report, ok := g.reports.pop(); ok {
		return report, true
	}
	for {
		if a, ok := g.nextLookup(); ok {
			return a, true
		}
		n, ok := g.nodeQueue.pop()
		if !ok {
			return Action{}, false
		}
		n.state &^= queued
		if !n.is(observed) || n.isAny(acting|backingOff|written) {
			continue
		}
		if a, ok := g.decide(n); ok {
			n.state |= acting
			return a, true
		}
	}
}

func (g *Graph) nextLookup() (Action, bool) {
	for c, ok := g.lookups.pop(); ok; c, ok = g.lookups.pop() {
		if a, ok := g.lookupAction(c); ok {
			return a, true
		}
	}
	return Action{}, false
}

// Done takes the outcome of an action. It returns true if no observation will requeue the
// object, so that the caller must call Wake(a.UID) after a backoff.
func (g *Graph) Done(a Action, outcome Outcome) (wake bool) {
	if a.Verb == Lookup {
		return g.recordLookup(a, outcome)
	}
	n := a.node
	if n == nil || !n.is(observed) {
		return false
	}
	n.state &^= acting
	if outcome.Object != nil && outcome.Object.GetUID() == a.UID {
		g.observe(n.resource, outcome.Object)
	}
	switch {
	case outcome.Result == Absent:
		g.makeTombstone(n)
	case outcome.Result == Applied && n.version == a.ResourceVersion:
		n.state |= written
	case outcome.Result == Failed, n.version == a.ResourceVersion:
		// The object has not changed: deciding now would repeat the action at once.
		n.state |= backingOff
		return true
	default:
		g.enqueue(n)
	}
	return false
}

// Wake ends the backoff of an object after a failed action, or after a lookup that found an
// object of a kind that is not watched. It returns false if the graph has no such node.
func (g *Graph) Wake(id types.UID) bool {
	n := g.find(id)
	if n == nil {
		return false
	}
	n.state &^= backingOff
	g.enqueue(n)
	eachEdgeTo(n, func(dependent *node, e *edge) {
		if u := e.unverified; u != nil && u.existence != lookupPending && u.existence != absent {
			u.existence = unknown
			g.enqueue(dependent)
		}
	})
	return true
}

// decide returns the action that n needs now, if any.
func (g *Graph) decide(n *node) (Action, bool) {
	orphaned := func(e *edge) bool { return e.owner.isOrphaning() }
	switch {
	case n.anyEdge(orphaned):
		return g.dropOwners(n, orphaned), true
	case n.isOrphaning():
		if len(n.dependents) > 0 {
			return Action{}, false
		}
		return g.removeFinalizer(n, metav1.FinalizerOrphanDependents)
	case n.isWaiting():
		if !n.isReleasable() {
			return Action{}, false
		}
		return g.removeFinalizer(n, metav1.FinalizerDeleteDependents)
	case n.is(deleting), len(n.edges) == 0:
		return Action{}, false
	}
	return g.collect(n)
}

// standing is the class of a reference; see the package documentation.
type standing uint8

const (
	refSolid standing = iota
	refWaiting
	refDangling
	refUnresolved
	refPending // not looked up yet
)

func (s standing) String() string {
	return [...]string{"solid", "waiting", "dangling", "unresolved", "pending"}[s]
}

// collect decides about n, which is not being deleted, from the standing of its references.
func (g *Graph) collect(n *node) (Action, bool) {
	var count [refPending + 1]int
	for i := range n.edges {
		e := &n.edges[i]
		s := g.classify(e)
		switch s {
		case refUnresolved:
			return Action{}, false
		case refPending:
			g.requestLookup(e.unverified)
		}
		count[s]++
	}
	switch {
	case count[refPending] > 0:
		return Action{}, false
	case count[refSolid] == len(n.edges):
		return Action{}, false
	case count[refSolid] > 0:
		return g.dropOwners(n, func(e *edge) bool { return g.classify(e) != refSolid }), true
	case count[refWaiting] > 0 && len(n.dependents) == 0 && !g.Complete():
		g.park(n) // It may have unknown dependents, which must be deleted first.
		return Action{}, false
	}
	return g.action(Delete, n, func(a *Action) {
		a.Policy = n.policy(count[refWaiting] > 0)
		a.Because = g.ownerReferences(n, func(*edge) bool { return true })
		for _, ref := range g.ownerReferences(n, func(e *edge) bool { return e.leaves(n) }) {
			a.InOtherNamespace = append(a.InOtherNamespace, ref.UID)
		}
	}), true
}

// policy returns the propagation policy to delete n with: Foreground if an owner waits for n
// and n has dependents, else the policy that n's own finalizers ask for.
func (n *node) policy(awaited bool) metav1.DeletionPropagation {
	switch {
	case awaited && len(n.dependents) > 0:
		return metav1.DeletePropagationForeground
	case n.is(orphan):
		return metav1.DeletePropagationOrphan
	case n.is(foreground):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// classify returns the standing of e.
func (g *Graph) classify(e *edge) standing {
	if e.is(followed) {
		switch {
		case e.owner.is(tombstone):
			return refDangling
		case e.owner.isWaiting():
			return refWaiting
		}
		return refSolid
	}
	u := e.unverified
	r, ok := g.served[u.GroupKind]
	switch {
	case u.existence == absent:
		return refDangling
	case !ok, r.Namespaced && u.namespace == "":
		return refUnresolved
	case u.existence == exists:
		return refSolid
	case u.existence == existsWaiting:
		return refWaiting
	}
	return refPending
}

// requestLookup queues a lookup of u, unless the first list of its resource may still observe it.
func (g *Graph) requestLookup(u *unverifiedOwner) {
	if u.existence == unknown && !g.served[u.GroupKind].awaitsList() {
		u.existence = lookupPending
		g.lookups.push(u)
	}
}

// lookupAction returns the action that looks up u.
func (g *Graph) lookupAction(u *unverifiedOwner) (Action, bool) {
	r, ok := g.served[u.GroupKind]
	if !ok || u.edges == 0 {
		u.existence = unknown
		return Action{}, false
	}
	a := Action{
		Verb:       Lookup,
		Resource:   r.GroupVersionResource,
		Kind:       r.Kind,
		Name:       u.name,
		UID:        g.uids.expand(u.uid),
		unverified: u,
	}
	if r.Namespaced {
		a.Namespace = u.namespace
	}
	return a, true
}

// recordLookup records the result of the lookup a.
func (g *Graph) recordLookup(a Action, outcome Outcome) (wake bool) {
	u := a.unverified
	if u.edges == 0 {
		return false
	}
	object := outcome.Object
	switch {
	case outcome.Result == Failed:
		u.existence = lookupFailed
		return true
	case object == nil || object.GetUID() != a.UID:
		u.existence = absent
		g.enqueueDependents(u.owner)
		return false
	}
	if r, ok := g.resources[a.Resource.GroupResource()]; ok && r.willObserve(object) {
		g.observe(r, object)
	}
	if u.edges == 0 {
		return false // The object is observed now, and all edges to it are followed.
	}
	u.existence = exists
	if stateOf(object)&(deleting|foreground) == deleting|foreground {
		u.existence = existsWaiting
	}
	g.enqueueDependents(u.owner)
	return true
}

// dropOwners returns the action that removes the references of n for which drop returns true.
func (g *Graph) dropOwners(n *node, drop func(*edge) bool) Action {
	return g.action(DropOwners, n, func(a *Action) {
		a.Because = g.ownerReferences(n, drop)
		a.OwnerReferences = g.ownerReferences(n, func(e *edge) bool { return !drop(e) })
	})
}

// removeFinalizer returns the action that removes a finalizer from n. It parks n until all
// resources are listed, since n may have unknown dependents.
func (g *Graph) removeFinalizer(n *node, finalizer string) (Action, bool) {
	if !g.Complete() {
		g.park(n)
		return Action{}, false
	}
	return g.action(RemoveFinalizer, n, func(a *Action) {
		a.Finalizers = slices.DeleteFunc(splitFinalizers(n.finalizers.Value()), func(f string) bool { return f == finalizer })
	}), true
}

// action returns an action on n; f fills in the rest.
func (g *Graph) action(verb Verb, n *node, f func(*Action)) Action {
	a := Action{
		Verb:            verb,
		Resource:        n.resource.GroupVersionResource,
		Kind:            n.resource.Kind,
		Namespace:       n.namespace.Value(),
		Name:            n.name,
		UID:             g.uids.expand(n.uid),
		ResourceVersion: n.version,
		node:            n,
	}
	f(&a)
	return a
}

func (n *node) anyEdge(f func(*edge) bool) bool {
	for i := range n.edges {
		if f(&n.edges[i]) {
			return true
		}
	}
	return false
}

func (g *Graph) ownerReferences(n *node, choose func(*edge) bool) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for i := range n.edges {
		if e := &n.edges[i]; choose(e) {
			refs = append(refs, g.ownerReference(e))
		}
	}
	return refs
}
