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

// Observe takes an object that a watch event added or modified.
func (g *Graph) Observe(gr schema.GroupResource, object metav1.Object) {
	if r, ok := g.resources[gr]; ok {
		r.noteVersion(object)
		g.observe(r, object)
	}
}

// noteVersion records the progress of r's watch.
func (r *resource) noteVersion(object metav1.Object) {
	if newer(object.GetResourceVersion(), r.latest) {
		r.latest = object.GetResourceVersion()
	}
}

// observe updates the graph from an object of r. Observations come from lists, watches and
// responses, in any order and more than once. Observations of a deleted object, and those not
// newer than the last one, change nothing.
func (g *Graph) observe(r *resource, object metav1.Object) {
	if object.GetUID() == "" {
		return
	}
	n := g.ensureNode(g.uids.compact(object.GetUID()))
	if n.is(tombstone) || n.is(observed) && (n.resource != r || !newer(object.GetResourceVersion(), n.version)) {
		return
	}
	g.noteHold(n, object)
	first := !n.is(observed)
	state := stateOf(object)
	n.version = object.GetResourceVersion()
	n.finalizers = unique.Make(strings.Join(object.GetFinalizers(), "\n"))
	if !first && n.state&(deleting|foreground|orphan) == state && g.sameEdges(n, object.GetOwnerReferences()) {
		if n.isAny(written | backingOff) {
			n.state &^= written | backingOff
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
	g.noteLost(n, state, object.GetOwnerReferences())
	former := g.unlink(n)
	n.state &^= deleting | foreground | orphan | written | backingOff
	n.state |= observed | state
	if first {
		g.bindDependents(n)
	}
	g.link(n, object.GetOwnerReferences(), former)
	if starts {
		g.enqueueDependents(n)
	}
	g.requeueOwners(former)
	g.requeueOwners(n.edges)
	if len(n.edges) > 0 || n.is(deleting) {
		g.enqueue(n)
	}
}

// noteHold records whether n is on hold. Holds do not affect decisions; Held lists them.
func (g *Graph) noteHold(n *node, object metav1.Object) {
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

// newer reports whether version a is newer than b. Versions that cannot be compared count as
// newer if they differ.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}

// Forget takes the last state of an object from a watch's delete event.
func (g *Graph) Forget(gr schema.GroupResource, object metav1.Object) {
	r, ok := g.resources[gr]
	if !ok {
		return
	}
	r.noteVersion(object)
	if n := g.find(object.GetUID()); n != nil && n.is(observed) && n.resource == r {
		g.makeTombstone(n)
	}
}

// willObserve reports whether the watch of r has still to deliver this state of an object, and
// so everything that happens to the object later. If the watch is already past this state, the
// object may have been deleted since the response.
func (r *resource) willObserve(object metav1.Object) bool {
	if !r.Watched || !r.listed {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), r.latest)
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

// makeTombstone makes n a tombstone: its own edges end, and edges to it dangle.
func (g *Graph) makeTombstone(n *node) {
	g.unobserve(n, tombstone)
	g.enqueueDependents(n)
	g.dropUnused(n)
}

// makeVirtual makes n virtual again, since it is unknown whether it still exists.
func (g *Graph) makeVirtual(n *node) {
	g.unbindDependents(n)
	g.unobserve(n, 0)
	g.bindDependents(n)
	g.enqueueDependents(n)
	g.dropUnused(n)
}

// unobserve ends the observation of n.
func (g *Graph) unobserve(n *node, state nodeState) {
	former := g.unlink(n)
	delete(g.lost, n.uid)
	delete(g.holds, n)
	n.resource.objects--
	n.state = n.state&(queued|parked) | state
	n.version = ""
	g.requeueOwners(former)
}

// requeueOwners requeues the owners that may be waiting for a change of one of these edges, and
// drops the owners that no edge refers to.
func (g *Graph) requeueOwners(edges []edge) {
	for i := range edges {
		owner := edges[i].owner
		if owner.isWaiting() || owner.isOrphaning() {
			g.enqueue(owner)
		}
		g.dropUnused(owner)
	}
}

// sameEdges reports whether n's edges represent exactly refs.
func (g *Graph) sameEdges(n *node, refs []metav1.OwnerReference) bool {
	if len(n.edges) != len(refs) {
		return false
	}
	for i := range refs {
		e, ref := &n.edges[i], &refs[i]
		if e.name != ref.Name || e.kind.kindRef != (kindRef{ref.APIVersion, ref.Kind}) ||
			e.state&(controllerSet|controllerTrue|blockSet|blockTrue) != edgeStateOf(ref) ||
			e.owner.uid != g.uids.compact(ref.UID) {
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

// ownerReference returns the owner reference that e represents.
func (g *Graph) ownerReference(e *edge) metav1.OwnerReference {
	ref := metav1.OwnerReference{
		APIVersion: e.kind.apiVersion,
		Kind:       e.kind.kind,
		Name:       e.name,
		UID:        g.uids.expand(e.owner.uid),
	}
	if e.is(controllerSet) {
		ref.Controller = new(e.is(controllerTrue))
	}
	if e.is(blockSet) {
		ref.BlockOwnerDeletion = new(e.is(blockTrue))
	}
	return ref
}
