// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// link creates n's edges from its owner references. Edges inherit the state reported from the
// former edges to the same owner.
func (g *Graph) link(n *node, refs []metav1.OwnerReference, former []edge) {
	if len(refs) == 0 {
		return
	}
	n.edges = make([]edge, len(refs))
	for i := range refs {
		ref, e := &refs[i], &n.edges[i]
		*e = edge{
			owner: g.ensureNode(g.uids.compact(ref.UID)),
			kind:  g.ensureKind(kindRef{ref.APIVersion, ref.Kind}),
			name:  ref.Name,
			index: -1,
			state: edgeStateOf(ref),
		}
		if e.owner.name == e.name {
			e.name = e.owner.name // All dependents share one string.
		}
		if !refersTo(n.edges[:i], e.owner) {
			e.index = int32(len(e.owner.dependents))
			e.owner.dependents = append(e.owner.dependents, n)
		}
		for j := range former {
			if former[j].owner == e.owner {
				e.state |= former[j].state & reported
			}
		}
		g.bind(n, e)
	}
}

func refersTo(edges []edge, owner *node) bool {
	for i := range edges {
		if edges[i].owner == owner {
			return true
		}
	}
	return false
}

// unlink removes n's edges and returns them. The owners stay in the graph.
func (g *Graph) unlink(n *node) []edge {
	former := n.edges
	for i := range former {
		e := &former[i]
		g.unbind(n, e)
		if e.kind.edges--; e.kind.edges == 0 {
			delete(g.kinds, e.kind.kindRef)
		}
		if e.index >= 0 {
			e.owner.removeDependent(e.index)
		}
	}
	n.edges = nil
	return former
}

// removeDependent removes the dependent at index. The last dependent moves to its place.
func (n *node) removeDependent(index int32) {
	last := len(n.dependents) - 1
	moved := n.dependents[last]
	n.dependents[last] = nil
	n.dependents = n.dependents[:last]
	if int(index) == last {
		return
	}
	n.dependents[index] = moved
	for i := range moved.edges {
		if e := &moved.edges[i]; e.owner == n && e.index >= 0 {
			e.index = index
			return
		}
	}
}

// bind follows an edge of n or, if it cannot be followed, adds it to an unverified owner.
func (g *Graph) bind(n *node, e *edge) {
	if !follows(n, e) {
		g.addUnverified(n, e)
		g.report(n, e)
		return
	}
	e.state |= followed
	if e.blocks() {
		e.owner.blocking++
		if n.isWaiting() {
			e.owner.blockingWaiting++
		}
	}
}

// unbind undoes bind. n must be in the same state as it was for bind.
func (g *Graph) unbind(n *node, e *edge) {
	if e.blocks() {
		e.owner.blocking--
		if n.isWaiting() {
			e.owner.blockingWaiting--
		}
	}
	e.state &^= followed
	if e.unverified == nil {
		return
	}
	if e.unverified.edges--; e.unverified.edges == 0 {
		delete(g.unverified, e.unverified.ownerKey)
		if len(g.unverified) == 0 {
			g.unverified = map[ownerKey]*unverifiedOwner{} // Maps do not shrink, and there are many unverified owners at startup.
		}
	}
	e.unverified = nil
}

// follows reports whether e names an observed owner correctly.
func follows(n *node, e *edge) bool {
	o := e.owner
	return o.isAny(observed|tombstone) && o.name == e.name && o.resource.groupKind() == e.kind.GroupKind &&
		(!o.resource.Namespaced || o.namespace == n.namespace)
}

// bindDependents binds all edges to n, after n was observed or became virtual.
func (g *Graph) bindDependents(n *node) { eachEdgeTo(n, g.bind) }

// unbindDependents undoes bindDependents.
func (g *Graph) unbindDependents(n *node) { eachEdgeTo(n, g.unbind) }

func eachEdgeTo(n *node, f func(*node, *edge)) {
	for _, dependent := range n.dependents {
		for i := range dependent.edges {
			if e := &dependent.edges[i]; e.owner == n {
				f(dependent, e)
			}
		}
	}
}

// addUnverified adds e to the edges of its unverified owner.
func (g *Graph) addUnverified(n *node, e *edge) {
	key := ownerKey{uid: e.owner.uid, GroupKind: e.kind.GroupKind, namespace: n.namespace.Value(), name: e.name}
	u, ok := g.unverified[key]
	if !ok {
		u = &unverifiedOwner{ownerKey: key, owner: e.owner}
		g.unverified[key] = u
	}
	u.edges++
	e.unverified = u
}

// leaves reports whether e, an edge of n, names an owner that was observed in another namespace.
func (e *edge) leaves(n *node) bool {
	o := e.owner
	return o.isAny(observed|tombstone) && o.resource.Namespaced && o.namespace != n.namespace
}

// report queues an event, once, if e refers to an owner in another namespace.
func (g *Graph) report(n *node, e *edge) {
	o := e.owner
	if !o.is(observed) || !e.leaves(n) || e.is(reported) {
		return
	}
	e.state |= reported
	namespace := n.namespace.Value()
	g.reports.push(g.action(Report, n, func(a *Action) {
		a.Reason = ReasonInvalidNamespace
		a.Message = fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			e.kind.apiVersion, e.kind.kind, namespace, e.name, g.uids.expand(o.uid), namespace)
	}))
}

// ensureKind returns the kind of a reference, and counts one more edge that uses it.
func (g *Graph) ensureKind(ref kindRef) *kind {
	k, ok := g.kinds[ref]
	if !ok {
		k = &kind{kindRef: ref, GroupKind: Current(schema.FromAPIVersionAndKind(ref.apiVersion, ref.kind).GroupKind())}
		g.kinds[ref] = k
	}
	k.edges++
	return k
}
