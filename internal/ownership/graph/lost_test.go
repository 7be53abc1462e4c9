// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLost removes references in every possible way and checks which of them count as lost.
func TestLost(t *testing.T) {
	type family struct{ a, b, d *item }
	drop := func(*item) {}
	owners := func(refs ...metav1.OwnerReference) func(*item) {
		return func(d *item) { d.OwnerReferences = refs }
	}
	for name, tt := range map[string]struct {
		change func(w *world, f family)
		want   []string
	}{
		"no change":  {change: func(w *world, f family) { w.update(f.d, drop) }},
		"lost":       {func(w *world, f family) { w.update(f.d, owners()) }, []string{"a", "b"}},
		"one of two": {func(w *world, f family) { w.update(f.d, owners(ref(f.b, true))) }, []string{"a"}},
		"one after the other": {func(w *world, f family) {
			w.update(f.d, owners(ref(f.b, true)))
			w.deliverAll()
			w.update(f.d, owners())
		}, []string{"a", "b"}},
		"restored": {func(w *world, f family) {
			w.update(f.d, owners())
			w.deliverAll()
			w.update(f.d, owners(ref(f.a, true)))
		}, []string{"b"}},
		"replaced": {change: func(w *world, f family) { w.update(f.d, owners(ref(w.create(alphas, "one", "c"), true))) }},
		"replaced later": {change: func(w *world, f family) {
			w.update(f.d, owners())
			w.deliverAll()
			w.update(f.d, owners(ref(w.create(alphas, "one", "c"), true)))
		}},
		"changed": {change: func(w *world, f family) { w.update(f.d, owners(ref(f.a, false), ref(f.b, false))) }},
		"owner deleted": {func(w *world, f family) {
			w.update(f.d, owners())
			w.deliverAll()
			w.delete(f.a, metav1.DeletePropagationBackground)
		}, []string{"b"}},
		"owner being deleted": {change: func(w *world, f family) {
			w.delete(f.a, metav1.DeletePropagationForeground)
			w.delete(f.b, metav1.DeletePropagationOrphan)
			w.deliverAll()
			w.update(f.d, owners())
		}},
		"dependent being deleted": {change: func(w *world, f family) {
			w.update(f.d, func(d *item) { d.Finalizers = []string{testFinalizer} })
			w.delete(f.d, metav1.DeletePropagationBackground)
			w.deliverAll()
			w.update(f.d, owners())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			f := family{a: w.create(alphas, "one", "a"), b: w.create(alphas, "one", "b")}
			f.d = w.create(betas, "one", "d", ref(f.a, true), ref(f.b, true))
			w.deliverAll()
			tt.change(w, f)
			w.deliverAll()
			d, ok := w.graph.Object(f.d.UID)
			if !ok {
				t.Fatal("the dependent is not known")
			}
			var lost []string
			for _, ref := range d.Lost {
				lost = append(lost, ref.Name)
			}
			if diff := cmp.Diff(tt.want, lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLostIsForgotten checks that a deleted object has no entry in lost.
func TestLostIsForgotten(t *testing.T) {
	w := quiet(t)
	d := w.create(betas, "one", "d", ref(w.create(alphas, "one", "a"), true))
	w.deliverAll()
	w.update(d, func(d *item) { d.OwnerReferences = nil })
	w.deliverAll()
	if len(w.graph.lost) != 1 {
		t.Fatalf("%d objects have lost something, want 1", len(w.graph.lost))
	}
	w.delete(d, metav1.DeletePropagationBackground)
	w.deliverAll()
	if len(w.graph.lost) != 0 {
		t.Errorf("%d deleted objects still have lost references", len(w.graph.lost))
	}
}
