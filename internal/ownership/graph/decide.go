// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Next returns the next action, decided from what is known now. The caller tells
// the end of each but a Report with [Graph.Done]; until then no further action
// on the same object comes up.
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
		if !n.is(observed) || n.is(acting|resting|written) {
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
		if a, ok := g.lookup(c); ok {
			return a, true
		}
	}
	return Action{}, false
}

// Done tells how an action ended. It returns true when nothing will be observed
// that brings the matter up again: the caller is to call Wake(a.UID) after a while.
func (g *Graph) Done(a Action, outcome Outcome) (wake bool) {
	if a.Verb == Lookup {
		return g.answered(a, outcome)
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
		g.gone(n)
	case outcome.Result == Applied && n.version == a.ResourceVersion:
		n.state |= written
	case outcome.Result == Failed, n.version == a.ResourceVersion:
		// An object in the state that the action was decided from would get
		// the same action at once.
		n.state |= resting
		return true
	default:
		g.enqueue(n)
	}
	return false
}

// Wake ends the rest of an object that an action failed on, or that was found
// by a lookup and is not watched. It returns false if nothing knows it any more.
func (g *Graph) Wake(id types.UID) bool {
	n := g.find(id)
	if n == nil {
		return false
	}
	n.state &^= resting
	g.enqueue(n)
	eachEdgeTo(n, func(dependent *node, e *edge) {
		if c := e.claim; c != nil && c.verdict != asked && c.verdict != absent {
			c.verdict = unknown
			g.enqueue(dependent)
		}
	})
	return true
}

// decide says what is to be done about n now, if anything.
func (g *Graph) decide(n *node) (Action, bool) {
	orphaned := func(e *edge) bool { return e.owner.orphaning() }
	switch {
	case n.any(orphaned):
		return g.dropOwners(n, orphaned), true
	case n.orphaning():
		if len(n.dependents) > 0 {
			return Action{}, false
		}
		return g.removeFinalizer(n, metav1.FinalizerOrphanDependents)
	case n.waiting():
		if !n.released() {
			return Action{}, false
		}
		return g.removeFinalizer(n, metav1.FinalizerDeleteDependents)
	case n.is(deleting), len(n.edges) == 0:
		return Action{}, false
	}
	return g.judge(n)
}

// standing is how a reference stands; see the package documentation.
type standing uint8

const (
	solid standing = iota
	waiting
	dangling
	unresolved
	pending // to be looked up
)

func (s standing) String() string {
	return [...]string{"solid", "waiting", "dangling", "unresolved", "pending"}[s]
}

// judge decides about n, which is not being deleted, by the standing of its references.
func (g *Graph) judge(n *node) (Action, bool) {
	var count [pending + 1]int
	for i := range n.edges {
		e := &n.edges[i]
		s := g.standing(e)
		switch s {
		case unresolved:
			return Action{}, false
		case pending:
			g.ask(e.claim)
		}
		count[s]++
	}
	switch {
	case count[pending] > 0:
		return Action{}, false
	case count[solid] == len(n.edges):
		return Action{}, false
	case count[solid] > 0:
		return g.dropOwners(n, func(e *edge) bool { return g.standing(e) != solid }), true
	case count[waiting] > 0 && len(n.dependents) == 0 && !g.Complete():
		g.park(n) // it may have dependents, which go first
		return Action{}, false
	}
	return g.action(Delete, n, func(a *Action) {
		a.Policy = n.policy(count[waiting] > 0)
		a.Because = g.references(n, func(*edge) bool { return true })
		for _, ref := range g.references(n, func(e *edge) bool { return e.leaves(n) }) {
			a.Elsewhere = append(a.Elsewhere, ref.UID)
		}
	}), true
}

// policy is how n is deleted: with its dependents first when an owner waits for
// it to go, else as the finalizers ask that it carries.
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

func (g *Graph) standing(e *edge) standing {
	if e.is(followed) {
		switch {
		case e.owner.is(gone):
			return dangling
		case e.owner.waiting():
			return waiting
		}
		return solid
	}
	c := e.claim
	r, ok := g.served[c.GroupKind]
	switch {
	case c.verdict == absent:
		return dangling
	case !ok, r.Namespaced && c.namespace == "":
		return unresolved
	case c.verdict == exists:
		return solid
	case c.verdict == existsWaiting:
		return waiting
	}
	return pending
}

// ask has c looked up, unless the first list of its resource may yet settle it.
func (g *Graph) ask(c *claim) {
	if c.verdict == unknown && !g.served[c.GroupKind].pending() {
		c.verdict = asked
		g.lookups.push(c)
	}
}

// lookup is the action that settles c.
func (g *Graph) lookup(c *claim) (Action, bool) {
	r, ok := g.served[c.GroupKind]
	if !ok || c.edges == 0 {
		c.verdict = unknown
		return Action{}, false
	}
	a := Action{
		Verb:     Lookup,
		Resource: r.GroupVersionResource,
		Kind:     r.Kind,
		Name:     c.name,
		UID:      g.uids.uid(c.uid),
		claim:    c,
	}
	if r.Namespaced {
		a.Namespace = c.namespace
	}
	return a, true
}

// answered settles the claim that a looked up.
func (g *Graph) answered(a Action, outcome Outcome) (wake bool) {
	c := a.claim
	if c.edges == 0 {
		return false
	}
	object := outcome.Object
	switch {
	case outcome.Result == Failed:
		c.verdict = unclear
		return true
	case object == nil || object.GetUID() != a.UID:
		c.verdict = absent
		g.enqueueDependents(c.owner)
		return false
	}
	if r, ok := g.resources[a.Resource.GroupResource()]; ok && r.foresees(object) {
		g.observe(r, object)
	}
	if c.edges == 0 {
		return false // what was observed is what the edges claim: they are followed now
	}
	c.verdict = exists
	if stateOf(object)&(deleting|foreground) == deleting|foreground {
		c.verdict = existsWaiting
	}
	g.enqueueDependents(c.owner)
	return true
}

// dropOwners is the action that takes away the references of n that drop chooses.
func (g *Graph) dropOwners(n *node, drop func(*edge) bool) Action {
	return g.action(DropOwners, n, func(a *Action) {
		a.Because = g.references(n, drop)
		a.OwnerReferences = g.references(n, func(e *edge) bool { return !drop(e) })
	})
}

// removeFinalizer is the action that takes a finalizer away from n, once all
// dependents that n could have are known.
func (g *Graph) removeFinalizer(n *node, finalizer string) (Action, bool) {
	if !g.Complete() {
		g.park(n)
		return Action{}, false
	}
	return g.action(RemoveFinalizer, n, func(a *Action) {
		a.Finalizers = slices.DeleteFunc(splitFinalizers(n.finalizers.Value()), func(f string) bool { return f == finalizer })
	}), true
}

// action fills in the action's object and leaves the rest to f.
func (g *Graph) action(verb Verb, n *node, f func(*Action)) Action {
	a := Action{
		Verb:            verb,
		Resource:        n.resource.GroupVersionResource,
		Kind:            n.resource.Kind,
		Namespace:       n.namespace.Value(),
		Name:            n.name,
		UID:             g.uids.uid(n.uid),
		ResourceVersion: n.version,
		node:            n,
	}
	f(&a)
	return a
}

func (n *node) any(f func(*edge) bool) bool {
	for i := range n.edges {
		if f(&n.edges[i]) {
			return true
		}
	}
	return false
}

func (g *Graph) references(n *node, choose func(*edge) bool) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for i := range n.edges {
		if e := &n.edges[i]; choose(e) {
			refs = append(refs, g.reference(e))
		}
	}
	return refs
}
