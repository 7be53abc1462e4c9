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

// TestRehearsalComesTrue rehearses deletions in random worlds, performs them, and compares the
// forecasts with the store: first with finalizers in place, then with the finalizers removed.
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

// avoidRaces removes what makes the final state depend on the order: the finalizer orphan of
// owners whose dependents have other owners, which may be deleted before or after.
func (w *world) avoidRaces() {
	for _, o := range w.sorted() {
		if o.DeletionTimestamp != nil || !slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) {
			continue
		}
		for _, d := range w.sorted() {
			if len(d.OwnerReferences) > 1 && slices.ContainsFunc(d.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == o.UID }) {
				w.update(o, func(o *item) { o.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), isCollectorFinalizer) })
				break
			}
		}
	}
}

// some returns deletions of up to four objects with one policy.
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

// rehearse compares the forecasts of some deletions with what happens.
func (w *world) rehearse() {
	deletions := w.some()
	forecasts := w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...)
	before, below := w.snapshot(), w.belowFinalizer()
	for _, d := range deletions {
		if o := w.byUID(d.UID); o != nil {
			w.delete(o, d.Policy)
		}
	}
	w.settle()
	// If an object has several owners, it depends on the order too which of them it waits for.
	exact := !slices.ContainsFunc(forecasts, func(f Forecast) bool { return len(f.Owners) > 1 })
	for _, f := range forecasts {
		if exists := w.byUID(f.UID) != nil; exists != (f.Fate != Deleted || len(f.Blocks) > 0) && exact && !below[f.UID] {
			w.t.Errorf("%s %s exists: %v; the forecast was %s %+v", f.Kind, f.Name, exists, f.Fate, f.Blocks)
		}
		w.checkBlocks(f)
	}
	w.finish(forecasts, before)
}

// finish removes the test's finalizers and checks that every object met its forecast.
func (w *world) finish(forecasts []Forecast, before map[types.UID][]metav1.OwnerReference) {
	touched := map[types.UID]bool{}
	for _, f := range forecasts {
		touched[f.UID] = true
	}
	for w.releaseDeleted(touched) {
		w.settle()
	}
	for _, f := range forecasts {
		w.checkFate(f)
	}
	after := w.snapshot()
	for id, refs := range before {
		if touched[id] {
			continue
		}
		if diff := cmp.Diff(refs, after[id]); diff != "" {
			w.t.Errorf("%v changed without a forecast: %s", id, diff)
		}
	}
}

// TestRehearsalOfSeveralComesTrue deletes several objects one after another, as a client does,
// while the cascades of earlier ones are in progress. The final state must match the forecast of
// all deletions together. Before each deletion, all of them are rehearsed again on the current
// graph. That must never forecast a greater loss than the first rehearsal, so that a client
// which stops in that case stops only if another client interfered.
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
		forecasts := w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...)
		inTurn := w.graph.Rehearse(roots(deletions)...).DeleteInTurn(w.perform, deletions...)
		if fates(forecasts) != fates(inTurn) {
			return length // A reference is invalid, so the order matters.
		}
		before, kinds := w.snapshot(), w.kindsOf(deletions)
		for _, d := range deletions {
			w.observe(kinds)
			w.checkWithin(forecasts, w.graph.Rehearse(roots(deletions)...).Delete(w.perform, deletions...))
			if o := w.byUID(d.UID); o != nil {
				w.delete(o, d.Policy)
			}
			for range w.rng.IntN(60) {
				w.step()
			}
		}
		w.settle()
		w.finish(forecasts, before)
		return length
	})
}

// kindsOf returns the resources of the targets of deletions.
func (w *world) kindsOf(deletions []Deletion) []Resource {
	var kinds []Resource
	for _, d := range deletions {
		kinds = append(kinds, w.byUID(d.UID).resource)
	}
	return kinds
}

// observe delivers all events of some resources to the graph.
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

func fates(forecasts []Forecast) string {
	var all []string
	for _, f := range forecasts {
		all = append(all, fmt.Sprintf("%s %s", f.UID, f.Fate))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// loss orders fates by how much is lost. Blocked and Deleted are equal, because whether a
// deletion completes may depend on which policy was applied first: the client's or the
// collector's.
var loss = map[Fate]int{"": 0, Kept: 0, Orphaned: 1, Blocked: 2, Deleted: 2}

// checkWithin fails the test if a later rehearsal forecasts a greater loss.
func (w *world) checkWithin(forecasts, now []Forecast) {
	before := map[types.UID]Fate{}
	for _, f := range forecasts {
		before[f.UID] = f.Fate
	}
	for _, f := range now {
		if loss[f.Fate] > loss[before[f.UID]] {
			w.t.Errorf("%s %s is now %s; the forecast was %q", f.Kind, f.Name, f.Fate, before[f.UID])
		}
	}
}

// TestOrderMatters deletes two owners of an object, one in the background and one with Orphan.
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

// TestOwnersFirst sorts random objects of random graphs: dependents come after their owners,
// except within a cycle.
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
			for _, n := range w.graph.reachable([]types.UID{id}) {
				below[id][w.graph.uids.expand(n.uid)] = true
			}
		}
		sorted := w.graph.OwnersFirst(ids)
		for i, id := range sorted {
			for _, later := range sorted[i:] {
				if below[later][id] && !below[id][later] { // If each is below the other, they are in a cycle.
					t.Fatalf("seed %d: %s comes before its owner %s", s, id, later)
				}
			}
		}
		if slices.Sort(sorted); !slices.Equal(sorted, slices.Sorted(slices.Values(ids))) {
			t.Fatalf("seed %d: %v became %v", s, ids, sorted)
		}
	}
}

func (w *world) checkBlocks(f Forecast) {
	o := w.byUID(f.UID)
	for _, b := range f.Blocks {
		switch {
		case o == nil:
			continue
		case b.Finalizer != "" && !slices.Contains(o.Finalizers, b.Finalizer):
			w.t.Errorf("%s has no finalizer %s", f.Name, b.Finalizer)
		case b.Dependent != "" && w.byUID(b.Dependent) == nil:
			w.t.Errorf("%s waits for a deleted dependent", f.Name)
		case b.Owner != "" && w.byUID(b.Owner) == nil:
			w.t.Errorf("%s waits for a deleted owner", f.Name)
		}
	}
}

func (w *world) checkFate(f Forecast) {
	o := w.byUID(f.UID)
	switch {
	case (f.Fate == Deleted) != (o == nil):
		w.t.Errorf("%s %s exists: %v; the forecast was %s %+v", f.Kind, f.Name, o != nil, f.Fate, f.Blocks)
		return
	case o == nil:
		return
	case (f.Fate == Blocked) != (o.DeletionTimestamp != nil):
		w.t.Errorf("%s %s is being deleted: %v; the forecast was %s %+v", f.Kind, f.Name, o.DeletionTimestamp, f.Fate, f.Blocks)
	case f.Fate == Blocked:
		return
	}
	var remaining []metav1.OwnerReference
	for _, owner := range f.RemainingOwners {
		remaining = append(remaining, owner.OwnerReference)
	}
	if diff := cmp.Diff(remaining, o.OwnerReferences); diff != "" && len(remaining)+len(o.OwnerReferences) > 0 {
		w.t.Errorf("references of %s %s: %s", f.Kind, f.Name, diff)
	}
}

// belowFinalizer returns the objects that have a direct or indirect owner with the test's
// finalizer. If no dependent blocks such an owner, it stops waiting before or after the decision
// about its dependents; both are correct.
func (w *world) belowFinalizer() map[types.UID]bool {
	below := map[types.UID]bool{}
	for before := -1; before < len(below); {
		before = len(below)
		for _, o := range w.objects {
			if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
				owner := w.byUID(r.UID)
				return below[r.UID] || owner != nil && slices.Contains(owner.Finalizers, testFinalizer)
			}) {
				below[o.UID] = true
			}
		}
	}
	return below
}

// releaseDeleted removes the test's finalizer from the given objects that are being deleted, and
// reports whether there were any.
func (w *world) releaseDeleted(objects map[types.UID]bool) bool {
	released := false
	for _, o := range w.sorted() {
		if objects[o.UID] && o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, testFinalizer) {
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

// snapshot returns the owner references of all objects.
func (w *world) snapshot() map[types.UID][]metav1.OwnerReference {
	all := map[types.UID][]metav1.OwnerReference{}
	for _, o := range w.objects {
		all[o.UID] = slices.Clone(o.OwnerReferences)
	}
	return all
}
