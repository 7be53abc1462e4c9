// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rehearsal simulates deletions on a copy of a part of a graph: the root objects, all their
// dependents, and the owners of those. The copy decides by the graph's own rules, and the
// Rehearsal plays the part of the API server. It shares nothing with the graph that it was
// copied from.
type Rehearsal struct {
	graph *Graph
	// actors are the objects that can change, breadth first from the roots.
	actors []*actor
	byUID  map[types.UID]*actor
	// finalizing are the actors that are being deleted and have finalizers of other components.
	finalizing []*actor
	// lookUp performs a Lookup.
	lookUp func(Action) Outcome
	clock  int // the last resourceVersion
}

// actor is an object of a rehearsal.
type actor struct {
	before Object
	meta   metav1.ObjectMeta // the current state
	gone   bool
	// orphaned is true if a reference was removed because its owner orphans its dependents.
	orphaned bool
}

// Deletion is a request to delete an object with a propagation policy.
type Deletion struct {
	UID    types.UID
	Policy metav1.DeletionPropagation
}

// Fate is what happens to an object after deletions, once all finalizers of other components
// have been removed.
type Fate string

const (
	// Deleted: the object is deleted.
	Deleted Fate = "Deleted"
	// Orphaned: the object stays, and loses its references to owners that orphan it.
	Orphaned Fate = "Orphaned"
	// Kept: the object stays, because of an owner that stays or is unknown.
	Kept Fate = "Kept"
	// Blocked: the object's deletion never completes, because it waits for a dependent that stays.
	Blocked Fate = "Blocked"
)

// Forecast is the predicted fate of one object.
type Forecast struct {
	// Object is the object before the deletions.
	Object
	Fate Fate
	// Blocks are what the object's deletion would wait for now. Fate assumes that the components
	// that added the finalizers among them remove them.
	Blocks []Block
	// RemainingOwners are the references that an object that stays keeps, with their standing
	// after the deletions.
	RemainingOwners []Owner
}

// Block is what a deletion waits for: a finalizer, a dependent that must be deleted first, or an
// owner whose own deletion is blocked.
type Block struct {
	Finalizer string
	Dependent types.UID
	Owner     types.UID
}

// Rehearse copies the part of the graph that deletions of the roots can affect.
func (g *Graph) Rehearse(roots ...types.UID) *Rehearsal {
	r := &Rehearsal{graph: New(), byUID: map[types.UID]*actor{}}
	for gr, served := range g.resources {
		r.graph.Serve(served.Resource)
		if served.Watched {
			r.graph.Replace(gr, nil, "0")
		}
	}
	reached := g.reachable(roots)
	for _, n := range reached {
		r.addActor(g, n)
	}
	for _, n := range reached {
		for i := range n.edges {
			r.addOwner(g, &n.edges[i])
		}
	}
	return r
}

// reachable returns the observed roots, their direct and indirect dependents, and the owners
// that wait for any of these, with their dependents in turn.
func (g *Graph) reachable(roots []types.UID) []*node {
	var reached []*node
	visited := map[*node]bool{}
	visit := func(n *node) {
		if n != nil && n.is(observed) && !visited[n] {
			visited[n] = true
			reached = append(reached, n)
		}
	}
	for _, id := range roots {
		visit(g.find(id))
	}
	for i := 0; i < len(reached); i++ {
		for _, dependent := range reached[i].dependents {
			visit(dependent)
		}
		for j := range reached[i].edges {
			if owner := reached[i].edges[j].owner; owner.isWaiting() || owner.isOrphaning() {
				visit(owner)
			}
		}
	}
	return reached
}

// addActor copies n of g as an actor.
func (r *Rehearsal) addActor(g *Graph, n *node) {
	a := &actor{before: g.object(n)}
	a.meta = a.before.meta()
	r.actors = append(r.actors, a)
	r.byUID[a.before.UID] = a
	if a.meta.DeletionTimestamp != nil {
		r.noteFinalizers(a)
	}
	r.commit(a)
}

// noteFinalizers records that a, which is being deleted, has finalizers of other components.
func (r *Rehearsal) noteFinalizers(a *actor) {
	if slices.ContainsFunc(a.meta.Finalizers, isForeignFinalizer) {
		r.finalizing = append(r.finalizing, a)
	}
}

// addOwner copies the owner that e names, unless it is an actor, as an object that cannot change.
func (r *Rehearsal) addOwner(g *Graph, e *edge) {
	id := g.uids.expand(e.owner.uid)
	if n := r.graph.find(id); r.byUID[id] != nil || n == nil || n.isAny(observed|tombstone) || !e.owner.isAny(observed|tombstone) {
		return
	}
	owner := g.object(e.owner) // A tombstone still has its name, namespace and resource.
	meta := owner.meta()
	r.clock++
	meta.ResourceVersion = strconv.Itoa(r.clock)
	r.graph.Observe(owner.GroupResource(), &meta)
	if e.owner.is(tombstone) {
		r.graph.Forget(owner.GroupResource(), &meta)
	}
}

// Delete performs deletions, all of them in the given order before the collector acts, and
// returns the fates of the affected objects, breadth first from the roots. lookUp performs the
// necessary Lookups; dependents of owners that it fails to look up are kept. Only one call of
// Delete or DeleteInTurn is allowed.
func (r *Rehearsal) Delete(lookUp func(Action) Outcome, deletions ...Deletion) []Forecast {
	return r.run(lookUp, func() {}, deletions)
}

// DeleteInTurn is like Delete, but with a slow client: the collector finishes the cascade of each
// deletion before the next one arrives. If all deletions have the same policy, the result is that
// of Delete, except where references are invalid; see OrderMatters.
func (r *Rehearsal) DeleteInTurn(lookUp func(Action) Outcome, deletions ...Deletion) []Forecast {
	return r.run(lookUp, r.settle, deletions)
}

// OrderMatters reports whether the result of deletions may depend on how fast they follow each
// other, because their policies differ. If one owner of an object is deleted in the background
// and another one orphans it, the order in which the collector handles the two references
// decides whether the object is deleted.
func OrderMatters(deletions []Deletion) bool {
	return slices.ContainsFunc(deletions, func(d Deletion) bool { return d.Policy != deletions[0].Policy })
}

func (r *Rehearsal) run(lookUp func(Action) Outcome, between func(), deletions []Deletion) []Forecast {
	r.lookUp = lookUp
	r.settle()
	for _, d := range deletions {
		if a := r.byUID[d.UID]; a != nil && !a.gone {
			r.delete(a, d.Policy)
			between()
		}
	}
	r.settle()
	stuck := r.unfinished()
	for r.removeFinalizers() {
		r.settle()
	}
	return r.forecasts(stuck)
}

// settle performs actions until none is left.
func (r *Rehearsal) settle() {
	for action, ok := r.graph.Next(); ok; action, ok = r.graph.Next() {
		if action.Verb != Report {
			r.graph.Done(action, r.perform(action))
		}
	}
}

// perform does what the API server would do. Actions on objects that are not actors fail,
// because the copy lacks their other dependents.
func (r *Rehearsal) perform(action Action) Outcome {
	if action.Verb == Lookup {
		return r.lookup(action)
	}
	a := r.byUID[action.UID]
	if a == nil {
		return Outcome{Result: Failed}
	}
	switch action.Verb {
	case Delete:
		r.delete(a, action.Policy)
		return Outcome{Result: Applied}
	case DropOwners:
		a.orphaned = a.orphaned || slices.ContainsFunc(action.Because, r.isOrphaned)
		a.meta.OwnerReferences = action.OwnerReferences
	case RemoveFinalizer:
		a.meta.Finalizers = action.Finalizers
	}
	r.commit(a)
	return Outcome{Result: Applied}
}

// lookup performs a Lookup. Actors are observed, so a Lookup with the UID of an actor comes from
// a reference with a wrong name, which no object has.
func (r *Rehearsal) lookup(action Action) Outcome {
	if r.byUID[action.UID] != nil {
		return Outcome{Result: Absent}
	}
	outcome := r.lookUp(action)
	if outcome.Object != nil {
		// With an old version the graph does not observe it: the copy has no watch for it.
		outcome.Object = &metav1.ObjectMeta{
			UID: outcome.Object.GetUID(), ResourceVersion: "0",
			DeletionTimestamp: outcome.Object.GetDeletionTimestamp(), Finalizers: outcome.Object.GetFinalizers(),
		}
	}
	return outcome
}

// isOrphaned reports whether the owner of a reference is orphaning its dependents.
func (r *Rehearsal) isOrphaned(ref metav1.OwnerReference) bool {
	n := r.graph.find(ref.UID)
	return n != nil && n.isOrphaning()
}

// delete handles a DELETE request as the API server does: the policy decides which of the
// collector's finalizers the object has; see
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#cascading-deletion.
func (r *Rehearsal) delete(a *actor, policy metav1.DeletionPropagation) {
	finalizers := slices.DeleteFunc(slices.Clone(a.meta.Finalizers), isCollectorFinalizer)
	switch policy {
	case metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	}
	a.meta.Finalizers = finalizers
	if a.meta.DeletionTimestamp == nil {
		a.meta.DeletionTimestamp = &metav1.Time{}
		r.noteFinalizers(a)
	}
	r.commit(a)
}

// isCollectorFinalizer reports whether the collector removes the finalizer.
func isCollectorFinalizer(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

func isForeignFinalizer(finalizer string) bool { return !isCollectorFinalizer(finalizer) }

// commit sends the object's current state to the graph, as a watch would.
func (r *Rehearsal) commit(a *actor) {
	r.clock++
	a.meta.ResourceVersion = strconv.Itoa(r.clock)
	meta, resource := a.meta, a.before.GroupResource()
	if a.meta.DeletionTimestamp != nil && len(a.meta.Finalizers) == 0 {
		a.gone = true
		r.graph.Forget(resource, &meta)
		return
	}
	r.graph.Observe(resource, &meta)
}

// removeFinalizers removes the finalizers of other components from the objects that are being
// deleted, and reports whether there were any. The cascade that follows may delete further
// objects with finalizers.
func (r *Rehearsal) removeFinalizers() bool {
	finalizing := r.finalizing
	r.finalizing = nil
	for _, a := range finalizing {
		a.meta.Finalizers = slices.DeleteFunc(slices.Clone(a.meta.Finalizers), isForeignFinalizer)
		r.commit(a)
	}
	return len(finalizing) > 0
}

// unfinished returns what the deletion of each object that still exists waits for.
func (r *Rehearsal) unfinished() map[types.UID][]Block {
	stuck := map[types.UID][]Block{}
	for _, a := range r.actors {
		if !a.gone {
			stuck[a.before.UID] = r.blocksOf(a)
		}
	}
	return stuck
}

// blocksOf returns what the deletion of a waits for. If it has not started, because the deletion
// of an owner is blocked, that is the owner, and then the object's own finalizers.
func (r *Rehearsal) blocksOf(a *actor) []Block {
	n := r.graph.find(a.before.UID)
	if n.is(deleting) {
		return r.graph.waits(n)
	}
	return append(r.ownersLeft(n), finalizerBlocks(n)...)
}

// ownersLeft returns a Block for each owner of n, which is not being deleted, that still exists.
func (r *Rehearsal) ownersLeft(n *node) []Block {
	var blocks []Block
	for i := range n.edges {
		id := r.graph.uids.expand(n.edges[i].owner.uid)
		if a := r.byUID[id]; a != nil && !a.gone {
			blocks = append(blocks, Block{Owner: id})
		}
	}
	return blocks
}

// forecasts returns the forecast of each object that the deletions affected.
func (r *Rehearsal) forecasts(stuck map[types.UID][]Block) []Forecast {
	var all []Forecast
	for _, a := range r.actors {
		if fate := r.fate(a); fate != "" {
			all = append(all, r.forecast(a, fate, stuck[a.before.UID]))
		}
	}
	return all
}

// fate returns the fate of an object, or "" if nothing happened to it and its owners.
func (r *Rehearsal) fate(a *actor) Fate {
	switch {
	case a.gone:
		return Deleted
	case a.meta.DeletionTimestamp != nil:
		return Blocked
	case a.orphaned:
		return Orphaned
	case slices.ContainsFunc(a.before.Owners, r.isDeleted):
		return Kept
	}
	return ""
}

// isDeleted reports whether an owner was deleted or is being deleted.
func (r *Rehearsal) isDeleted(o Owner) bool {
	a := r.byUID[o.UID]
	return a != nil && a.meta.DeletionTimestamp != nil
}

func (r *Rehearsal) forecast(a *actor, fate Fate, blocks []Block) Forecast {
	f := Forecast{Object: a.before, Fate: fate}
	if fate == Deleted || fate == Blocked {
		f.Blocks = blocks
		return f
	}
	now, _ := r.graph.Object(a.before.UID)
	f.RemainingOwners = now.Owners
	return f
}
