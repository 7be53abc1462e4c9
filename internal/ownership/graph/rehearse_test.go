// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	gocmp "cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRehearsalComesTrue rehearses deletions in random worlds, then performs them, and
// finds what was foreseen: first while finalizers hold, then when they are gone.
func TestRehearsalComesTrue(t *testing.T) {
	episodes(t, func(w *world) int {
		const length = 120
		for range length {
			if w.rng.IntN(3) == 0 {
				w.interfere()
			} else {
				w.step()
			}
		}
		if w.rng.IntN(4) == 0 {
			w.serveOrNot()
		}
		w.avoidRaces()
		w.settle()
		w.rehearse()
		return length
	})
}

// avoidRaces takes away what makes the end depend on the order: an owner that is going to let
// its dependents go, when these have other owners, which may go before or after.
func (w *world) avoidRaces() {
	for _, o := range w.sorted() {
		if o.DeletionTimestamp != nil || !slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) {
			continue
		}
		for _, d := range w.sorted() {
			if len(d.OwnerReferences) > 1 && slices.ContainsFunc(d.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == o.UID }) {
				w.update(o, func(o *item) { o.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), ours) })
				break
			}
		}
	}
}

// some returns the deletions of up to four objects, by one policy.
func (w *world) some() []Deletion {
	var deletions []Deletion
	policy := w.policy()
	for range 1 + w.rng.IntN(4) {
		if len(w.objects) == 0 {
			break
		}
		o := w.sorted()[w.rng.IntN(len(w.objects))]
		again := slices.ContainsFunc(deletions, func(d Deletion) bool { return d.UID == o.UID })
		if o.resource.Watched && w.served[o.resource.GroupResource()] && !again {
			deletions = append(deletions, Deletion{o.UID, policy})
		}
	}
	return deletions
}

func roots(deletions []Deletion) []types.UID {
	var ids []types.UID
	for _, d := range deletions {
		ids = append(ids, d.UID)
	}
	return ids
}

// rehearse foresees the deletion of some objects and holds the world against it.
func (w *world) rehearse() {
	deletions := w.some()
	foreseen := w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...)
	before, held := w.snapshot(), w.held()
	for _, d := range deletions {
		if o := w.byUID(d.UID); o != nil {
			w.delete(o, d.Policy)
		}
	}
	w.settle()
	// With several owners it is a matter of order too which of them is waited for.
	exact := !slices.ContainsFunc(foreseen, func(f Foreseen) bool { return len(f.Owners) > 1 })
	for _, f := range foreseen {
		if there := w.byUID(f.UID) != nil; there != (f.Fate != Deleted || len(f.Blocks) > 0) && exact && !held[f.UID] {
			w.t.Errorf("%s %s is there: %v; foreseen was %s %+v", f.Kind, f.Name, there, f.Fate, f.Blocks)
		}
		w.checkBlocks(f)
	}
	w.finish(foreseen, before)
}

// finish takes away what holds objects, and finds that nothing else has become of any object
// than was foreseen.
func (w *world) finish(foreseen []Foreseen, before map[types.UID][]metav1.OwnerReference) {
	touched := map[types.UID]bool{}
	for _, f := range foreseen {
		touched[f.UID] = true
	}
	for w.releaseDeleted(touched) {
		w.settle()
	}
	for _, f := range foreseen {
		w.checkFate(f)
	}
	after := w.snapshot()
	for id, refs := range before {
		if touched[id] {
			continue
		}
		if diff := cmp.Diff(refs, after[id]); diff != "" {
			w.t.Errorf("not foreseen about %v: %s", id, diff)
		}
	}
}

// TestRehearsalOfSeveralComesTrue deletes several objects one after another, as a client does:
// while the cascades of the first ones are under way. The end is what was foreseen of all of
// them together. Before each deletion all of them are rehearsed again, from what the graph
// knows by then, and that never takes more than was foreseen at first: so a client that stops
// when it does stops only if another client interfered.
func TestRehearsalOfSeveralComesTrue(t *testing.T) {
	episodes(t, func(w *world) int {
		const length = 120
		if w.rng.IntN(2) == 0 {
			w.plant(5 + w.rng.IntN(30))
		} else {
			for range length {
				if w.rng.IntN(3) == 0 {
					w.interfere()
				} else {
					w.step()
				}
			}
			w.avoidRaces()
		}
		w.settle()
		deletions := w.ownersFirst(w.some())
		foreseen := w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...)
		inTurn := w.graph.Rehearse(roots(deletions)...).DeleteInTurn(w.perform, deletions...)
		if fates(foreseen) != fates(inTurn) {
			return length // A reference is invalid, and the order matters.
		}
		before, kinds := w.snapshot(), w.kindsOf(deletions)
		for _, d := range deletions {
			w.observe(kinds)
			w.checkWithin(foreseen, w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...))
			if o := w.byUID(d.UID); o != nil {
				w.delete(o, d.Policy)
			}
			for range w.rng.IntN(60) {
				w.step()
			}
		}
		w.settle()
		w.finish(foreseen, before)
		return length
	})
}

// kindsOf are the resources that the targets of deletions are of.
func (w *world) kindsOf(deletions []Deletion) []Resource {
	var kinds []Resource
	for _, d := range deletions {
		kinds = append(kinds, w.byUID(d.UID).resource)
	}
	return kinds
}

// observe shows the graph all changes of some resources.
func (w *world) observe(kinds []Resource) {
	for _, r := range kinds {
		for w.deliver(r) {
		}
	}
}

func (w *world) ownersFirst(deletions []Deletion) []Deletion {
	place := w.graph.OwnersFirst(roots(deletions))
	slices.SortFunc(deletions, func(a, b Deletion) int {
		return gocmp.Compare(slices.Index(place, a.UID), slices.Index(place, b.UID))
	})
	return deletions
}

func fates(foreseen []Foreseen) string {
	var all []string
	for _, f := range foreseen {
		all = append(all, fmt.Sprintf("%s %s", f.UID, f.Fate))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// loss orders what becomes of an object by how much of it is lost. Whether a deletion ends that
// has begun may depend on the policy that an object got first: its client's, or the collector's.
var loss = map[Fate]int{"": 0, Kept: 0, Orphaned: 1, Blocked: 2, Deleted: 2}

// checkWithin fails when a rehearsal takes more than was foreseen before.
func (w *world) checkWithin(foreseen, now []Foreseen) {
	before := map[types.UID]Fate{}
	for _, f := range foreseen {
		before[f.UID] = f.Fate
	}
	for _, f := range now {
		if loss[f.Fate] > loss[before[f.UID]] {
			w.t.Errorf("%s %s is now %s; foreseen was %q", f.Kind, f.Name, f.Fate, before[f.UID])
		}
	}
}

// TestOrderMatters: an object that one owner would take along and another one lets go.
func TestOrderMatters(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 0)))
	first, second := w.create(alphas, "one", "first"), w.create(alphas, "one", "second")
	w.create(betas, "one", "shared", ref(first, false), ref(second, false))
	w.settle()
	deletions := []Deletion{{first.UID, metav1.DeletePropagationBackground}, {second.UID, metav1.DeletePropagationOrphan}}
	atOnce := w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...)
	inTurn := w.graph.Rehearse(roots(deletions)...).DeleteInTurn(w.perform, deletions...)
	if !OrderMatters(deletions) || atOnce[2].Fate != Deleted || inTurn[2].Fate != Orphaned {
		t.Errorf("at once %s, in turn %s", atOnce[2].Fate, inTurn[2].Fate)
	}
	deletions[0].Policy = metav1.DeletePropagationOrphan
	if OrderMatters(deletions) {
		t.Error("the order matters for a single policy")
	}
}

// TestOwnersFirst sorts random objects of random graphs: what is reached from another one and
// does not lead back comes after it.
func TestOwnersFirst(t *testing.T) {
	for s := range uint64(300) {
		w := newWorld(t, rand.New(rand.NewPCG(s, 2)))
		var ids []types.UID
		for _, o := range w.plant(30) {
			ids = append(ids, o.UID)
		}
		w.settle()
		w.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		ids = ids[:10]
		below := map[types.UID]map[types.UID]bool{}
		for _, id := range ids {
			below[id] = map[types.UID]bool{}
			for _, n := range w.graph.reach([]types.UID{id}) {
				below[id][w.graph.uids.uid(n.uid)] = true
			}
		}
		sorted := w.graph.OwnersFirst(ids)
		for i, id := range sorted {
			for _, later := range sorted[i:] {
				if below[later][id] && !below[id][later] { // below each other they are in a cycle
					t.Fatalf("seed %d: %s stands before its owner %s", s, id, later)
				}
			}
		}
		if slices.Sort(sorted); !slices.Equal(sorted, slices.Sorted(slices.Values(ids))) {
			t.Fatalf("seed %d: %v became %v", s, ids, sorted)
		}
	}
}

func (w *world) checkBlocks(f Foreseen) {
	o := w.byUID(f.UID)
	for _, b := range f.Blocks {
		switch {
		case o == nil:
			continue
		case b.Finalizer != "" && !slices.Contains(o.Finalizers, b.Finalizer):
			w.t.Errorf("%s has no finalizer %s", f.Name, b.Finalizer)
		case b.Dependent != "" && w.byUID(b.Dependent) == nil:
			w.t.Errorf("%s waits for a dependent that is gone", f.Name)
		case b.Owner != "" && w.byUID(b.Owner) == nil:
			w.t.Errorf("%s is held by an owner that is gone", f.Name)
		}
	}
}

func (w *world) checkFate(f Foreseen) {
	o := w.byUID(f.UID)
	switch {
	case (f.Fate == Deleted) != (o == nil):
		w.t.Errorf("%s %s is there: %v; foreseen was %s %+v", f.Kind, f.Name, o != nil, f.Fate, f.Blocks)
		return
	case o == nil:
		return
	case (f.Fate == Blocked) != (o.DeletionTimestamp != nil):
		w.t.Errorf("%s %s is being deleted: %v; foreseen was %s %+v", f.Kind, f.Name, o.DeletionTimestamp, f.Fate, f.Blocks)
	case f.Fate == Blocked:
		return
	}
	var stays []metav1.OwnerReference
	for _, owner := range f.Stays {
		stays = append(stays, owner.OwnerReference)
	}
	if diff := cmp.Diff(stays, o.OwnerReferences); diff != "" && len(stays)+len(o.OwnerReferences) > 0 {
		w.t.Errorf("references of %s %s: %s", f.Kind, f.Name, diff)
	}
}

// held are the objects with an owner, direct or not, that a finalizer holds. If nothing
// blocks such an owner it stops waiting before or after its dependents are looked at; both
// are right.
func (w *world) held() map[types.UID]bool {
	held := map[types.UID]bool{}
	for before := -1; before < len(held); {
		before = len(held)
		for _, o := range w.objects {
			if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
				owner := w.byUID(r.UID)
				return held[r.UID] || owner != nil && slices.Contains(owner.Finalizers, hold)
			}) {
				held[o.UID] = true
			}
		}
	}
	return held
}

// releaseDeleted takes the finalizers away that hold those of the objects that are being
// deleted.
func (w *world) releaseDeleted(objects map[types.UID]bool) bool {
	released := false
	for _, o := range w.sorted() {
		if objects[o.UID] && o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, hold) {
			w.release(o)
			released = true
		}
	}
	return released
}

func (w *world) byUID(id types.UID) *item {
	for _, o := range w.objects {
		if o.UID == id {
			return o
		}
	}
	return nil
}

// snapshot is what a deletion can change about objects.
func (w *world) snapshot() map[types.UID][]metav1.OwnerReference {
	all := map[types.UID][]metav1.OwnerReference{}
	for _, o := range w.objects {
		all[o.UID] = slices.Clone(o.OwnerReferences)
	}
	return all
}
