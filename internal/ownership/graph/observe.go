// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Observe tells of an object that a watch added or changed.
func (g *Graph) Observe(gr schema.GroupResource, object metav1.Object) {
	if r, ok := g.resources[gr]; ok {
		r.saw(object)
		g.observe(r, object)
	}
}

// saw notes how far the watch of r has come.
func (r *resource) saw(object metav1.Object) {
	if newer(object.GetResourceVersion(), r.seen) {
		r.seen = object.GetResourceVersion()
	}
}

// observe takes in what an object of r looks like. Observations come from lists,
// watches and answers to writes, in any order and more than once: one that is not
// newer than what is known changes nothing, and one of a deleted object neither.
func (g *Graph) observe(r *resource, object metav1.Object) {
	if object.GetUID() == "" {
		return
	}
	n := g.node(g.uids.of(object.GetUID()))
	if n.is(gone) || n.is(observed) && (n.resource != r || !newer(object.GetResourceVersion(), n.version)) {
		return
	}
	g.hold(n, object)
	first := !n.is(observed)
	state := stateOf(object)
	n.version = object.GetResourceVersion()
	n.finalizers = unique.Make(strings.Join(object.GetFinalizers(), "\n"))
	if !first && n.state&(deleting|foreground|orphan) == state && g.sameEdges(n, object.GetOwnerReferences()) {
		if n.is(written | resting) {
			n.state &^= written | resting
			g.enqueue(n)
		}
		return
	}

	starts := first || state&deleting != 0 && n.state&(deleting|foreground|orphan) != state
	if first {
		g.unbindDependents(n)
		n.resource, n.name = r, object.GetName()
		n.namespace = unique.Make(object.GetNamespace())
		r.objects++
	}
	g.remember(n, state, object.GetOwnerReferences())
	former := g.unlink(n)
	n.state &^= deleting | foreground | orphan | written | resting
	n.state |= observed | state
	if first {
		g.bindDependents(n)
	}
	g.link(n, object.GetOwnerReferences(), former)
	if starts {
		g.enqueueDependents(n)
	}
	g.wakeOwners(former)
	g.wakeOwners(n.edges)
	if len(n.edges) > 0 || n.is(deleting) {
		g.enqueue(n)
	}
}

// hold notes whether n is on hold. The graph does nothing differently for that; it is told of.
func (g *Graph) hold(n *node, object metav1.Object) {
	n.state &^= held
	delete(g.holds, n)
	if _, annotated := object.GetAnnotations()[ownership.HoldAnnotation]; annotated {
		n.state |= held
		g.holds[n] = struct{}{}
	}
}

func stateOf(object metav1.Object) nodeState {
	var s nodeState
	if object.GetDeletionTimestamp() != nil {
		s |= deleting
	}
	if slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		s |= foreground
	}
	if slices.Contains(object.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		s |= orphan
	}
	return s
}

// newer tells whether version a is newer than b, as far as can be told.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}

// Forget tells of an object that a watch saw deleted, in its last state.
func (g *Graph) Forget(gr schema.GroupResource, object metav1.Object) {
	r, ok := g.resources[gr]
	if !ok {
		return
	}
	r.saw(object)
	if n := g.find(object.GetUID()); n != nil && n.is(observed) && n.resource == r {
		g.gone(n)
	}
}

// foresees tells whether the watch of r will still tell of this state of an
// object, and so of all that happens to it later. An object that it does not
// foresee may have been deleted between the answer and now.
func (r *resource) foresees(object metav1.Object) bool {
	if !r.Watched || !r.listed {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), r.seen)
	return err == nil && order > 0
}

// find returns the node of id, or nil.
func (g *Graph) find(id types.UID) *node {
	u, ok := g.uids.find(id)
	if !ok {
		return nil
	}
	return g.nodes[u]
}

// gone makes n a tombstone: its references end, those to it dangle.
func (g *Graph) gone(n *node) {
	g.leave(n, gone)
	g.enqueueDependents(n)
	g.drop(n)
}

// unknow makes n virtual again: whether it exists is not known any more.
func (g *Graph) unknow(n *node) {
	g.unbindDependents(n)
	g.leave(n, 0)
	g.bindDependents(n)
	g.enqueueDependents(n)
	g.drop(n)
}

// leave ends n's being observed.
func (g *Graph) leave(n *node, state nodeState) {
	former := g.unlink(n)
	delete(g.lost, n.uid)
	delete(g.holds, n)
	n.resource.objects--
	n.state = n.state&(queued|parked) | state
	n.version = ""
	g.wakeOwners(former)
}

// wakeOwners has the owners decided about that may have waited for a change of
// one of these edges, and forgets the ones that nothing refers to any more.
func (g *Graph) wakeOwners(edges []edge) {
	for i := range edges {
		owner := edges[i].owner
		if owner.waiting() || owner.orphaning() {
			g.enqueue(owner)
		}
		g.drop(owner)
	}
}

// sameEdges tells whether n's edges are these references.
func (g *Graph) sameEdges(n *node, refs []metav1.OwnerReference) bool {
	if len(n.edges) != len(refs) {
		return false
	}
	for i := range refs {
		e, ref := &n.edges[i], &refs[i]
		if e.name != ref.Name || e.kind.reference != (reference{ref.APIVersion, ref.Kind}) ||
			e.state&(controllerSet|controllerTrue|blockSet|blockTrue) != edgeStateOf(ref) ||
			e.owner.uid != g.uids.of(ref.UID) {
			return false
		}
	}
	return true
}

func edgeStateOf(ref *metav1.OwnerReference) edgeState {
	var s edgeState
	if ref.Controller != nil {
		s |= controllerSet
		if *ref.Controller {
			s |= controllerTrue
		}
	}
	if ref.BlockOwnerDeletion != nil {
		s |= blockSet
		if *ref.BlockOwnerDeletion {
			s |= blockTrue
		}
	}
	return s
}

// reference returns the owner reference that e was made from.
func (g *Graph) reference(e *edge) metav1.OwnerReference {
	ref := metav1.OwnerReference{
		APIVersion: e.kind.apiVersion,
		Kind:       e.kind.kind,
		Name:       e.name,
		UID:        g.uids.uid(e.owner.uid),
	}
	if e.is(controllerSet) {
		ref.Controller = new(e.is(controllerTrue))
	}
	if e.is(blockSet) {
		ref.BlockOwnerDeletion = new(e.is(blockTrue))
	}
	return ref
}
