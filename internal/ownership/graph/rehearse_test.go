// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
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

// rehearse foresees the deletion of some objects and holds the world against it.
func (w *world) rehearse() {
	var roots []types.UID
	var deletions []Deletion
	if len(w.objects) == 0 {
		return
	}
	// Of deletions with several policies what is seen first decides.
	policy := w.policy()
	for range 1 + w.rng.IntN(3) {
		o := w.sorted()[w.rng.IntN(len(w.objects))]
		if !o.resource.Watched || !w.served[o.resource.GroupResource()] || slices.Contains(roots, o.UID) {
			continue
		}
		roots = append(roots, o.UID)
		deletions = append(deletions, Deletion{o.UID, policy})
	}
	foreseen := w.graph.Rehearse(roots...).Delete(w.perform, deletions...)
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
