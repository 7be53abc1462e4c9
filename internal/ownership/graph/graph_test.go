// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// all returns the graph's next actions, without ending them.
func (w *world) all() []string {
	var all []string
	for a, ok := w.graph.Next(); ok; a, ok = w.graph.Next() {
		all = append(all, fmt.Sprintf("%s %s %s", a.Verb, a.Name, a.Policy))
	}
	return all
}

func (w *world) wantActions(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.all()); diff != "" {
		w.t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func (w *world) deliverAll() {
	for _, r := range allKinds {
		for w.deliver(r) {
		}
	}
}

// TestPolicy checks the propagation policy for dependents: Foreground only if an owner waits and
// they have dependents themselves, or if they have the finalizer.
func TestPolicy(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		w := quiet(t)
		a := w.create(alphas, "one", "a")
		b := w.create(alphas, "one", "b", ref(a, true))
		c := w.create(alphas, "one", "c", ref(a, true))
		w.create(alphas, "one", "d", ref(b, true))
		c.Finalizers = []string{metav1.FinalizerDeleteDependents}
		w.deliverAll()
		w.delete(a, policy)
		w.deliverAll()
		w.wantActions("Delete b "+string(policy), "Delete c Foreground")
	}
}

// TestOneLookupForAll creates many dependents with the same absent owner.
func TestOneLookupForAll(t *testing.T) {
	w := quiet(t)
	for i := range 100 {
		w.create(betas, "one", fmt.Sprint("b", i), absentRef("77"))
	}
	w.deliverAll()
	a, ok := w.graph.Next()
	if !ok || a.Verb != Lookup {
		t.Fatalf("got %+v, want a lookup", a)
	}
	w.wantActions()
	w.graph.Done(a, w.perform(a))
	if n := len(w.all()); n != 100 {
		t.Errorf("%d deletions, want 100", n)
	}
}

// TestIncompleteGraph leaves one kind unlisted: decisions that depend on its objects wait, others
// do not, and GiveUp ends the wait.
func TestIncompleteGraph(t *testing.T) {
	w := quiet(t)
	a, o := w.create(alphas, "one", "a"), w.create(alphas, "one", "o")
	w.create(alphas, "one", "b", ref(a, true))                               // may have dependents among betas
	w.create(alphas, "one", "c", ref(w.create(betas, "one", "owner"), true)) // has an owner among betas
	w.create(alphas, "one", "d", absentRef("77"))
	w.delete(a, metav1.DeletePropagationForeground)
	w.delete(o, metav1.DeletePropagationOrphan)
	for _, r := range allKinds {
		for r != betas && w.deliver(r) {
		}
	}
	lookup, ok := w.graph.Next()
	if !ok || lookup.Verb != Lookup || lookup.Name != "77" {
		t.Fatalf("got %+v", lookup)
	}
	w.wantActions()
	w.graph.Done(lookup, w.perform(lookup))
	w.wantActions("Delete d Background")
	w.graph.GiveUp(betas.GroupResource())
	w.wantActions("Delete b Background", "RemoveFinalizer o ", "Lookup owner ")
}

// TestOwnerOfCycle lets a node wait for a cycle that it is not part of.
func TestOwnerOfCycle(t *testing.T) {
	w := quiet(t)
	top := w.create(alphas, "one", "top")
	a := w.create(alphas, "one", "a", ref(top, true))
	b := w.create(alphas, "one", "b", ref(a, true))
	w.update(a, func(a *item) { a.OwnerReferences = append(a.OwnerReferences, ref(b, true)) })
	w.deliverAll()
	for _, o := range []*item{top, a, b} {
		w.delete(o, metav1.DeletePropagationForeground)
	}
	w.deliverAll()
	w.wantActions("RemoveFinalizer a ", "RemoveFinalizer b ")
}

// TestObserveDeleted observes an object after its deletion, as a delayed response would.
func TestObserveDeleted(t *testing.T) {
	w := quiet(t)
	a := w.create(alphas, "one", "a")
	w.create(betas, "one", "b", ref(a, true))
	w.deliverAll()
	w.delete(a, metav1.DeletePropagationBackground)
	w.deliverAll()
	a.DeletionTimestamp = nil
	w.graph.Observe(alphas.GroupResource(), a)
	w.wantActions("Delete b Background")
	if w.graph.find(a.UID).is(observed) {
		t.Error("a deleted object counts as observed")
	}
}

// TestPreconditions changes a dependent between the decision and the write.
func TestPreconditions(t *testing.T) {
	w := quiet(t)
	a, b := w.create(alphas, "one", "a"), w.create(alphas, "one", "b")
	c := w.create(betas, "one", "c", ref(a, true))
	w.deliverAll()
	w.delete(a, metav1.DeletePropagationBackground)
	w.deliverAll()
	action, _ := w.graph.Next()
	if action.Verb != Delete || action.UID != c.UID || action.ResourceVersion != c.ResourceVersion {
		t.Fatalf("got %+v", action)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{ref(a, true)}, action.Because); diff != "" {
		t.Errorf("because (-want +got):\n%s", diff)
	}
	w.update(c, func(c *item) { c.OwnerReferences = append(c.OwnerReferences, ref(b, true)) })
	outcome := w.perform(action)
	if outcome.Result != Found {
		t.Fatalf("the deletion was %s", outcome.Result)
	}
	if w.graph.Done(action, outcome) {
		t.Error("asks for Wake although there is an action")
	}
	w.wantActions("DropOwners c ")
}

// TestFailureBacksOff lets an action fail, and lets one be rejected although the object has not
// changed.
func TestFailureBacksOff(t *testing.T) {
	for _, outcome := range []Outcome{{Result: Failed}, {Result: Found}} {
		w := quiet(t)
		w.create(betas, "one", "b", absentRef("77"))
		w.deliverAll()
		lookup, _ := w.graph.Next()
		w.graph.Done(lookup, Outcome{Result: Absent})
		action, _ := w.graph.Next()
		if !w.graph.Done(action, outcome) {
			t.Errorf("%s: Done does not ask for Wake", outcome.Result)
		}
		w.wantActions()
		if !w.graph.Wake(action.UID) {
			t.Errorf("%s: Wake does not find the object", outcome.Result)
		}
		w.wantActions("Delete b Background")
	}
	if New().Wake("unknown") {
		t.Error("Wake finds an object that was never observed")
	}
}

// TestReport checks the event about references to other namespaces: its text, and that it is
// recorded once, whichever of the two objects is observed first.
func TestReport(t *testing.T) {
	for _, order := range [][]Resource{{alphas, betas, clusters}, {clusters, betas, alphas}} {
		w := quiet(t)
		a := w.create(alphas, "one", "a")
		b := w.create(betas, "two", "b", ref(a, true))
		c := w.create(clusters, "", "c", ref(a, true))
		for _, r := range order {
			for w.deliver(r) {
			}
		}
		w.update(b, func(b *item) { b.Labels = map[string]string{"x": "y"} })
		w.update(b, func(b *item) { b.OwnerReferences = append(b.OwnerReferences, absentRef("77")) })
		wrong := ref(a, true)
		wrong.Name = "z"
		w.create(betas, "one", "d", wrong) // wrong, but not by its namespace
		w.deliverAll()
		got := map[string]string{}
		for action, ok := w.graph.Next(); ok && action.Verb == Report; action, ok = w.graph.Next() {
			if _, again := got[action.Name]; again {
				t.Errorf("%s is reported again", action.Name)
			}
			got[action.Name] = action.Reason + ": " + action.Message
		}
		text := `OwnerRefInvalidNamespace: ownerRef [t/v1/Alpha, namespace: %s, name: a, uid: %s] does not exist in namespace %q`
		want := map[string]string{
			b.Name: fmt.Sprintf(text, "two", a.UID, "two"),
			c.Name: fmt.Sprintf(text, "", a.UID, ""),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	}
}

// TestReferencesSurvive checks that the removal of one reference leaves every field of the
// others unchanged.
func TestReferencesSurvive(t *testing.T) {
	w := quiet(t)
	a := w.create(alphas, "one", "a")
	plain := metav1.OwnerReference{APIVersion: "t/v1", Kind: "Alpha", Name: "a", UID: a.UID}
	set := plain
	set.Controller, set.BlockOwnerDeletion = new(false), new(true)
	b := w.create(betas, "one", "b", plain, absentRef("77"), set)
	w.settle()
	if diff := cmp.Diff([]metav1.OwnerReference{plain, set}, b.OwnerReferences); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

func TestRead(t *testing.T) {
	w := quiet(t)
	a, b, c := w.create(alphas, "one", "a"), w.create(alphas, "one", "b"), w.create(alphas, "one", "c")
	unserved := metav1.OwnerReference{APIVersion: "no/v1", Kind: "Such", Name: "x", UID: "x"}
	refs := []metav1.OwnerReference{ref(a, true), ref(b, false), ref(c, true), absentRef("77"), unserved}
	d := w.create(betas, "one", "d", refs...)
	d.Finalizers = []string{testFinalizer, "test/another"}
	w.deliverAll()
	w.delete(b, metav1.DeletePropagationForeground)
	w.delete(c, metav1.DeletePropagationBackground)
	w.deliverAll()

	want := Object{
		Resource: betas, Namespace: "one", Name: "d", UID: d.UID, ResourceVersion: d.ResourceVersion,
		Finalizers: []string{testFinalizer, "test/another"},
	}
	for i, standing := range []string{"solid", "waiting", "dangling", "pending", "unresolved"} {
		want.Owners = append(want.Owners, Owner{OwnerReference: refs[i], Standing: standing, Followed: i < 3}) // The first three were observed.
	}
	got, ok := w.graph.Object(d.UID)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("found %v (-want +got):\n%s", ok, diff)
	}
	if o, ok := w.graph.Object(b.UID); !ok || !o.Deleting {
		t.Errorf("b: found %v, deleting %v", ok, o.Deleting)
	}
	for _, owner := range []types.UID{a.UID, c.UID, "x"} {
		if diff := cmp.Diff([]types.UID{d.UID}, w.graph.Dependents(owner)); diff != "" {
			t.Errorf("dependents of %s (-want +got):\n%s", owner, diff)
		}
	}
	if _, ok := w.graph.Object(c.UID); ok || w.graph.Dependents("unknown") != nil {
		t.Error("finds an object that does not exist")
	}
}

func TestUIDs(t *testing.T) {
	var table uidTable
	for _, id := range []types.UID{
		"b948ac56-fac2-4996-ba5a-f38fa6983cf3", "B948AC56-FAC2-4996-BA5A-F38FA6983CF3", "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"ffffffff-ffff-ffff-0000-000000000001", "x", "b948ac56-fac2-4996-ba5a-f38fa6983cf", "b948ac56-fac2-4996-ba5a-f38fa6983cfg", "b948ac56+fac2-4996-ba5a-f38fa6983cf3",
	} {
		u := table.compact(id)
		if got := table.expand(u); got != id || table.compact(id) != u {
			t.Errorf("%s became %s", id, got)
		}
		if found, ok := table.find(id); !ok || found != u {
			t.Errorf("%s is not found", id)
		}
	}
	if u, ok := table.find("never seen"); ok {
		t.Errorf("found %x", u)
	}
	odd := table.compact("x")
	table.forget(odd)
	if table.compact("x") == odd {
		t.Error("a number was given twice")
	}
}
