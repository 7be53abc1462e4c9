// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func quiet(t *testing.T) *world { return newWorld(t, rand.New(rand.NewPCG(1, 1))) }

// absentRef refers to an object that never existed.
func absentRef(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "t/v1", Kind: "Alpha", Name: name, UID: types.UID("00000000-0000-4000-8000-0000000000" + name)}
}

// TestRules has a small world for each documented rule: its objects, what happens to them, and
// the objects that remain.
func TestRules(t *testing.T) {
	background, foreground, orphaned := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	tests := []struct {
		name string
		do   func(w *world)
		// left are the objects that remain, as "name", "name(owner,owner)" and
		// with "!" before the name of one that is being deleted.
		left []string
	}{
		{
			name: "a dependent is deleted with its only owner",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.create(betas, "one", "b", ref(a, true))
				w.settle()
				w.delete(a, background)
			},
		},
		{
			name: "a dependent stays while one of two owners lives, and loses the other reference",
			do: func(w *world) {
				a, b := w.create(alphas, "one", "a"), w.create(alphas, "one", "b")
				w.create(betas, "one", "c", ref(a, true), ref(b, false))
				w.settle()
				w.delete(a, background)
			},
			left: []string{"b", "c(b)"},
		},
		{
			name: "a dependent is deleted with its last owner",
			do: func(w *world) {
				a, b := w.create(alphas, "one", "a"), w.create(alphas, "one", "b")
				w.create(betas, "one", "c", ref(a, true), ref(b, false))
				w.settle()
				w.delete(a, background)
				w.settle()
				w.delete(b, background)
			},
		},
		{
			name: "a waiting owner does not wait for a dependent that has a solid owner",
			do: func(w *world) {
				a, b := w.create(alphas, "one", "a"), w.create(alphas, "one", "b")
				w.create(betas, "one", "c", ref(a, true), ref(b, false))
				w.settle()
				w.delete(a, foreground)
			},
			left: []string{"b", "c(b)"},
		},
		{
			name: "an owner waits in the foreground for a dependent that blocks",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(betas, "one", "b", ref(a, true))
				b.Finalizers = []string{testFinalizer}
				w.settle()
				w.delete(a, foreground)
			},
			left: []string{"!a", "!b(a)"},
		},
		{
			name: "an owner does not wait for a dependent that does not block",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(betas, "one", "b", ref(a, false))
				b.Finalizers = []string{testFinalizer}
				w.settle()
				w.delete(a, foreground)
			},
			left: []string{"!b(a)"},
		},
		{
			name: "foreground deletion deletes dependents of dependents first",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(alphas, "one", "b", ref(a, true))
				c := w.create(betas, "one", "c", ref(b, true))
				c.Finalizers = []string{testFinalizer}
				w.settle()
				w.delete(a, foreground)
			},
			left: []string{"!a", "!b(a)", "!c(b)"},
		},
		{
			name: "orphaning removes the references of all dependents, in every namespace",
			do: func(w *world) {
				a, b := w.create(clusters, "", "a"), w.create(alphas, "one", "b")
				w.create(betas, "one", "c", ref(a, true), ref(b, true))
				w.create(betas, "two", "d", ref(a, true))
				w.settle()
				w.delete(a, orphaned)
			},
			left: []string{"b", "c(b)", "d"},
		},
		{
			name: "a cascade honors an existing finalizer orphan",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(alphas, "one", "b", ref(a, true))
				b.Finalizers = []string{metav1.FinalizerOrphanDependents}
				w.create(betas, "one", "c", ref(b, true))
				w.settle()
				w.delete(a, background)
			},
			left: []string{"c"},
		},
		{
			name: "a cycle keeps itself",
			do: func(w *world) {
				root := w.create(alphas, "one", "root")
				a := w.create(alphas, "one", "a", ref(root, true))
				b := w.create(alphas, "one", "b", ref(a, true))
				w.settle()
				w.delete(root, background)
				w.update(a, func(a *item) { a.OwnerReferences = []metav1.OwnerReference{ref(b, true), ref(root, true)} })
			},
			left: []string{"a(b)", "b(a)"}, // Each owns the other, so both have a solid owner.
		},
		{
			name: "a cycle does not block a foreground deletion",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(alphas, "one", "b", ref(a, true))
				w.update(a, func(a *item) { a.OwnerReferences = []metav1.OwnerReference{ref(b, true)} })
				w.settle()
				w.delete(a, foreground)
			},
		},
		{
			name: "an object that owns itself does not block its foreground deletion",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.update(a, func(a *item) { a.OwnerReferences = []metav1.OwnerReference{ref(a, true)} })
				w.settle()
				w.delete(a, foreground)
			},
		},
		{
			name: "a cycle whose objects are all deleted in the foreground",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(alphas, "one", "b", ref(a, true))
				c := w.create(alphas, "one", "c", ref(b, true))
				w.update(a, func(a *item) { a.OwnerReferences = []metav1.OwnerReference{ref(c, true)} })
				w.settle()
				for _, o := range []*item{a, b, c} {
					w.delete(o, foreground)
				}
			},
		},
		{
			name: "an owner in another namespace is absent",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.create(betas, "two", "b", ref(a, true))
			},
			left: []string{"a"},
		},
		{
			name: "a namespaced owner of a cluster-scoped object is never followed",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.create(clusters, "", "b", ref(a, true), absentRef("77"))
				w.settle()
				w.delete(a, foreground)
			},
			left: []string{"b(a,77)"},
		},
		{
			name: "the same name with another UID is absent",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.create(betas, "one", "b", ref(a, true))
				w.settle()
				w.delete(a, background)
				w.create(alphas, "one", "a")
			},
			left: []string{"a"},
		},
		{
			name: "an owner that never existed is absent",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.create(betas, "one", "b", absentRef("77"))
				w.create(betas, "one", "c", absentRef("77"), ref(a, true))
			},
			left: []string{"a", "c(a)"},
		},
		{
			name: "a reference with the wrong name or kind has no owner",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				name, kind := ref(a, true), ref(a, true)
				name.Name, kind.Kind = "z", betas.Kind
				w.create(betas, "one", "b", name)
				w.create(betas, "one", "c", kind)
			},
			left: []string{"a"},
		},
		{
			name: "the version in a reference does not matter",
			do: func(w *world) {
				a, b := w.create(alphas, "one", "a"), w.create(alphas, "one", "b")
				ra, rb := ref(a, true), ref(b, true)
				ra.APIVersion, rb.APIVersion = "t/v1alpha1", "t/v1alpha1"
				w.create(betas, "one", "c", ra)
				w.create(betas, "one", "d", rb)
				w.settle()
				w.delete(b, background)
			},
			left: []string{"a", "c(a)"},
		},
		{
			name: "dependents stay while their owner's kind is not served",
			do: func(w *world) {
				w.serveOrNot()
				r := metav1.OwnerReference{APIVersion: "f/v1", Kind: "Fleeting", Name: "f", UID: "00000000-0000-4000-8000-00000000ffff"}
				w.create(betas, "one", "a", r, absentRef("77"))
				w.create(betas, "one", "b", metav1.OwnerReference{APIVersion: "no/v1", Kind: "Such", Name: "x", UID: "x"})
				w.settle()
				if len(w.objects) != 2 {
					w.t.Error("an object was deleted although its owner's kind is not served")
				}
				w.serveOrNot()
			},
			left: []string{"b(x)"},
		},
		{
			name: "owners that were deleted before their kind was unserved are absent",
			do: func(w *world) {
				f, g := w.create(fleeting, "one", "f"), w.create(fleeting, "one", "g")
				w.create(betas, "one", "a", ref(f, true))
				w.create(betas, "one", "b", ref(g, true))
				w.settle()
				w.delete(f, background)
				for w.deliver(fleeting) {
				}
				w.serveOrNot()
			},
			left: []string{"b(g)", "g"},
		},
		{
			name: "a dependent of a kind that is no longer served does not block its owner",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				w.create(fleeting, "one", "f", ref(a, true))
				w.settle()
				w.serveOrNot()
				w.delete(a, foreground)
			},
			left: []string{"f(a)"},
		},
		{
			name: "an owner that cannot be watched is looked up",
			do: func(w *world) {
				p, q := w.create(polled, "one", "p"), w.create(polled, "one", "q")
				w.create(betas, "one", "a", ref(p, true))
				w.create(betas, "one", "b", ref(q, true))
				w.settle()
				w.delete(q, background)
			},
			left: []string{"a(p)", "p"},
		},
		{
			name: "without a solid owner, a waiting owner takes precedence over an absent one",
			do: func(w *world) {
				a, b := w.create(alphas, "one", "a"), w.create(alphas, "one", "b")
				c := w.create(alphas, "one", "c", ref(a, true), ref(b, true))
				d := w.create(betas, "one", "d", ref(c, true))
				d.Finalizers = []string{testFinalizer}
				w.settle()
				w.delete(b, background)
				w.delete(a, foreground)
				w.deliverAll()
			},
			left: []string{"!a", "!c(a,b)", "!d(c)"}, // A background deletion would have deleted c, and then a.
		},
		{
			name: "a waiting owner is not blocked by a dependent that has another owner",
			do: func(w *world) {
				a, b := w.create(clusters, "", "a"), w.create(alphas, "one", "b")
				c := w.create(betas, "one", "c", ref(a, true), ref(b, true))
				c.Finalizers = []string{testFinalizer}
				w.settle()
				w.delete(a, foreground)
			},
			left: []string{"b", "c(b)"},
		},
		{
			name: "an owner that is recreated while its kind is not served is absent",
			do: func(w *world) {
				f := w.create(fleeting, "one", "f")
				w.create(betas, "one", "a", ref(f, true))
				w.settle()
				w.serveOrNot()
				w.delete(f, background)
				w.create(fleeting, "one", "f")
				w.settle()
				if len(w.objects) != 2 {
					w.t.Error("an object was deleted although its owner's kind is not served")
				}
				w.serveOrNot()
			},
			left: []string{"f"},
		},
		{
			name: "an object that is being deleted is left to its finalizers",
			do: func(w *world) {
				a := w.create(alphas, "one", "a")
				b := w.create(betas, "one", "b", ref(a, true))
				b.Finalizers = []string{testFinalizer}
				w.delete(b, background)
				w.settle()
				w.writes = 0
				w.delete(a, background)
				w.settle()
				if w.writes > 0 {
					w.t.Errorf("%d writes, want none", w.writes)
				}
			},
			left: []string{"!b(a)"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := quiet(t)
			test.do(w)
			w.settle()
			w.checkGraph()
			if diff := cmp.Diff(test.left, w.left()); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			w.crash()
			w.settle()
			if diff := cmp.Diff(test.left, w.left()); diff != "" {
				t.Errorf("left after a restart (-want +got):\n%s", diff)
			}
		})
	}
}

// left describes the objects of the store in the notation of TestRules.
func (w *world) left() []string {
	names := map[types.UID]string{}
	for _, o := range w.objects {
		names[o.UID] = o.Name
	}
	var left []string
	for _, o := range w.sorted() {
		s := o.Name
		if o.DeletionTimestamp != nil {
			s = "!" + s
		}
		for i, r := range o.OwnerReferences {
			name := names[r.UID]
			if name == "" {
				name = r.Name
			}
			s += map[bool]string{true: "(", false: ","}[i == 0] + name
		}
		if len(o.OwnerReferences) > 0 {
			s += ")"
		}
		left = append(left, s)
	}
	slices.Sort(left)
	return left
}
