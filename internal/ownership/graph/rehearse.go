// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rehearsal is a part of a graph on which deletions are tried out: the objects at the
// root, all that depends on them, and the owners of those. The rules that decide
// are the graph's own; around it is the part of the API server that deletions need.
// A Rehearsal shares nothing with the graph it was taken from.
type Rehearsal struct {
	graph *Graph
	// actors are the objects that can change, in the order in which they are reached.
	actors []*actor
	byUID  map[types.UID]*actor
	// held are the actors that are being deleted and whose own finalizers hold them.
	held []*actor
	// ask performs a Lookup.
	ask   func(Action) Outcome
	clock int // the last resourceVersion
}

// actor is an object of a rehearsal.
type actor struct {
	before Object
	meta   metav1.ObjectMeta // as it is now
	gone   bool
	// orphaned: a reference was taken away because the owner lets its dependents go.
	orphaned bool
}

// Deletion is one that is asked for, with a propagation policy.
type Deletion struct {
	UID    types.UID
	Policy metav1.DeletionPropagation
}

// Fate is what becomes of an object after deletions, once nothing blocks them any more.
type Fate string

const (
	// Deleted: the object goes.
	Deleted Fate = "Deleted"
	// Orphaned: the object stays, and loses its references to owners that let it go.
	Orphaned Fate = "Orphaned"
	// Kept: the object stays, because of an owner that stays or is not known.
	Kept Fate = "Kept"
	// Blocked: the object is being deleted for ever. It waits for a dependent that stays.
	Blocked Fate = "Blocked"
)

// Foreseen is what becomes of one object.
type Foreseen struct {
	// Object is the object as it was.
	Object
	Fate Fate
	// Blocks are what its deletion waits for as things stand. A finalizer is taken away by
	// whoever put it there; Fate is what happens once all of them have been.
	Blocks []Block
	// Stays are the references that the object keeps when it is not deleted, and how
	// they stand then.
	Stays []Owner
}

// Block is what a deletion waits for: a finalizer, a dependent that has to go first and
// cannot, or an owner that cannot go and holds the object.
type Block struct {
	Finalizer string
	Dependent types.UID
	Owner     types.UID
}

// Rehearse takes the part of the graph that deletions of the roots can reach.
func (g *Graph) Rehearse(roots ...types.UID) *Rehearsal {
	r := &Rehearsal{graph: New(), byUID: map[types.UID]*actor{}}
	for gr, served := range g.resources {
		r.graph.Serve(served.Resource)
		if served.Watched {
			r.graph.Replace(gr, nil, "0")
		}
	}
	reached := g.reach(roots)
	for _, n := range reached {
		r.enter(g, n)
	}
	for _, n := range reached {
		for i := range n.edges {
			r.surround(g, &n.edges[i])
		}
	}
	return r
}

// reach returns the observed roots, all that refers to them, directly or not, and the owners
// that wait for any of these to go, with all that refers to those.
func (g *Graph) reach(roots []types.UID) []*node {
	var reached []*node
	met := map[*node]bool{}
	meet := func(n *node) {
		if n != nil && n.is(observed) && !met[n] {
			met[n] = true
			reached = append(reached, n)
		}
	}
	for _, id := range roots {
		meet(g.find(id))
	}
	for i := 0; i < len(reached); i++ {
		for _, dependent := range reached[i].dependents {
			meet(dependent)
		}
		for j := range reached[i].edges {
			if owner := reached[i].edges[j].owner; owner.waiting() || owner.orphaning() {
				meet(owner)
			}
		}
	}
	return reached
}

// enter makes n of g an actor.
func (r *Rehearsal) enter(g *Graph, n *node) {
	a := &actor{before: g.object(n)}
	a.meta = a.before.meta()
	r.actors = append(r.actors, a)
	r.byUID[a.before.UID] = a
	if a.meta.DeletionTimestamp != nil {
		r.hold(a)
	}
	r.commit(a)
}

// hold notes that a, which is being deleted, may have finalizers that are not the collector's.
func (r *Rehearsal) hold(a *actor) {
	if slices.ContainsFunc(a.meta.Finalizers, foreign) {
		r.held = append(r.held, a)
	}
}

// surround makes known what g knows of the owner that e names.
func (r *Rehearsal) surround(g *Graph, e *edge) {
	id := g.uids.uid(e.owner.uid)
	if n := r.graph.find(id); r.byUID[id] != nil || n == nil || n.is(observed|gone) || !e.owner.is(observed|gone) {
		return
	}
	// Of one that is gone the name and the place are still known.
	owner := g.object(e.owner)
	meta := owner.meta()
	r.clock++
	meta.ResourceVersion = strconv.Itoa(r.clock)
	r.graph.Observe(owner.GroupResource(), &meta)
	if e.owner.is(gone) {
		r.graph.Forget(owner.GroupResource(), &meta)
	}
}

// Delete performs deletions, in the order given and all before the collector acts, and
// returns their outcome in the order in which the objects are reached from the roots. ask
// performs the Lookups that this takes; dependents of what it fails to answer are kept.
// Delete and DeleteInTurn can be called once.
func (r *Rehearsal) Delete(ask func(Action) Outcome, deletions ...Deletion) []Foreseen {
	return r.play(ask, func() {}, deletions)
}

// DeleteInTurn is Delete with a slow client: the collector finishes all that follows from a
// deletion before the next one arrives. If all deletions have the same policy, the outcome is
// that of Delete, except where references are invalid; see OrderMatters.
func (r *Rehearsal) DeleteInTurn(ask func(Action) Outcome, deletions ...Deletion) []Foreseen {
	return r.play(ask, r.settle, deletions)
}

// OrderMatters reports whether the outcome of deletions may depend on how fast they follow
// each other: their policies differ. If one owner of an object is deleted in the background
// and another one orphans it, the object goes or stays, depending on which reference the
// collector deals with first.
func OrderMatters(deletions []Deletion) bool {
	return slices.ContainsFunc(deletions, func(d Deletion) bool { return d.Policy != deletions[0].Policy })
}

func (r *Rehearsal) play(ask func(Action) Outcome, between func(), deletions []Deletion) []Foreseen {
	r.ask = ask
	r.settle()
	for _, d := range deletions {
		if a := r.byUID[d.UID]; a != nil && !a.gone {
			r.delete(a, d.Policy)
			between()
		}
	}
	r.settle()
	stuck := r.unfinished()
	for r.release() {
		r.settle()
	}
	return r.foresee(stuck)
}

// settle lets the collector work until nothing is left to do.
func (r *Rehearsal) settle() {
	for action, ok := r.graph.Next(); ok; action, ok = r.graph.Next() {
		if action.Verb != Report {
			r.graph.Done(action, r.perform(action))
		}
	}
}

// perform does what the API server would. Owners that are no actors are left alone: what
// else depends on them is not known here.
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
		a.orphaned = a.orphaned || slices.ContainsFunc(action.Because, r.letsGo)
		a.meta.OwnerReferences = action.OwnerReferences
	case RemoveFinalizer:
		a.meta.Finalizers = action.Finalizers
	}
	r.commit(a)
	return Outcome{Result: Applied}
}

// lookup asks, but for an actor: one that is looked up is called by a wrong name, under
// which it is not to be found.
func (r *Rehearsal) lookup(action Action) Outcome {
	if r.byUID[action.UID] != nil {
		return Outcome{Result: Absent}
	}
	outcome := r.ask(action)
	if outcome.Object != nil {
		// As of an old version: no watch will tell of it.
		outcome.Object = &metav1.ObjectMeta{
			UID: outcome.Object.GetUID(), ResourceVersion: "0",
			DeletionTimestamp: outcome.Object.GetDeletionTimestamp(), Finalizers: outcome.Object.GetFinalizers(),
		}
	}
	return outcome
}

// letsGo tells whether the owner of a reference is being deleted without its dependents.
func (r *Rehearsal) letsGo(ref metav1.OwnerReference) bool {
	n := r.graph.find(ref.UID)
	return n != nil && n.orphaning()
}

// delete marks an object as the API server does: the policy decides which of the
// collector's finalizers it carries; see
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#cascading-deletion.
func (r *Rehearsal) delete(a *actor, policy metav1.DeletionPropagation) {
	finalizers := slices.DeleteFunc(slices.Clone(a.meta.Finalizers), ours)
	switch policy {
	case metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	}
	a.meta.Finalizers = finalizers
	if a.meta.DeletionTimestamp == nil {
		a.meta.DeletionTimestamp = &metav1.Time{}
		r.hold(a)
	}
	r.commit(a)
}

// ours tells whether a finalizer is the collector's.
func ours(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

func foreign(finalizer string) bool { return !ours(finalizer) }

// commit shows the graph the object as it is now: changed, or gone.
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

// release removes the finalizers that are not the collector's from the objects that are being
// deleted, and reports whether there were any. What follows from that may hold further objects.
func (r *Rehearsal) release() bool {
	held := r.held
	r.held = nil
	for _, a := range held {
		a.meta.Finalizers = slices.DeleteFunc(slices.Clone(a.meta.Finalizers), foreign)
		r.commit(a)
	}
	return len(held) > 0
}

// unfinished returns the objects that exist, each with what its deletion waits for now.
func (r *Rehearsal) unfinished() map[types.UID][]Block {
	stuck := map[types.UID][]Block{}
	for _, a := range r.actors {
		if !a.gone {
			stuck[a.before.UID] = r.blocksOf(a)
		}
	}
	return stuck
}

// blocksOf returns what the deletion of a waits for. If the deletion has not begun, because an
// owner is held up, that is the owner, and then the object's own finalizers.
func (r *Rehearsal) blocksOf(a *actor) []Block {
	n := r.graph.find(a.before.UID)
	if n.is(deleting) {
		return r.graph.waits(n)
	}
	return append(r.heldBy(n), finalizerBlocks(n)...)
}

// heldBy are the actors that n, which is not being deleted, has for owners still.
func (r *Rehearsal) heldBy(n *node) []Block {
	var blocks []Block
	for i := range n.edges {
		id := r.graph.uids.uid(n.edges[i].owner.uid)
		if a := r.byUID[id]; a != nil && !a.gone {
			blocks = append(blocks, Block{Owner: id})
		}
	}
	return blocks
}

// foresee says what became of each object that the deletions touched.
func (r *Rehearsal) foresee(stuck map[types.UID][]Block) []Foreseen {
	var all []Foreseen
	for _, a := range r.actors {
		if fate := r.fate(a); fate != "" {
			all = append(all, r.foreseen(a, fate, stuck[a.before.UID]))
		}
	}
	return all
}

// fate is empty when nothing happens to the object or its owners.
func (r *Rehearsal) fate(a *actor) Fate {
	switch {
	case a.gone:
		return Deleted
	case a.meta.DeletionTimestamp != nil:
		return Blocked
	case a.orphaned:
		return Orphaned
	case slices.ContainsFunc(a.before.Owners, r.goes):
		return Kept
	}
	return ""
}

// goes tells whether an owner was deleted, or is being.
func (r *Rehearsal) goes(o Owner) bool {
	a := r.byUID[o.UID]
	return a != nil && a.meta.DeletionTimestamp != nil
}

func (r *Rehearsal) foreseen(a *actor, fate Fate, blocks []Block) Foreseen {
	f := Foreseen{Object: a.before, Fate: fate}
	if fate == Deleted || fate == Blocked {
		f.Blocks = blocks
		return f
	}
	now, _ := r.graph.Object(a.before.UID)
	f.Stays = now.Owners
	return f
}
