// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/transplant"
)

// randomGraph returns objects that own and mention each other at random, also in cycles.
func randomGraph(r *rand.Rand) ([]*unstructured.Unstructured, map[types.UID]bool) {
	n := 1 + r.IntN(12)
	uid := func(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)) }
	objects := make([]*unstructured.Unstructured, n)
	for i := range objects {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}}
		o.SetName(fmt.Sprintf("thing-%d", i))
		o.SetNamespace("ns")
		o.SetUID(uid(i))
		var owners []metav1.OwnerReference
		for j := range n {
			// Most references are to earlier objects, so that there are some cycles.
			if (j < i && r.IntN(4) == 0) || r.IntN(6*n) == 0 {
				owners = append(owners, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: fmt.Sprintf("thing-%d", j), UID: uid(j)})
			}
		}
		o.SetOwnerReferences(owners)
		for j := range n {
			switch r.IntN(8) {
			case 0:
				_ = unstructured.SetNestedField(o.Object, string(uid(j)), "spec", fmt.Sprintf("ref%d", j))
			case 1:
				_ = unstructured.SetNestedField(o.Object, "x", "metadata", "labels", string(uid(j)))
			case 2:
				_ = unstructured.SetNestedField(o.Object, string(uid(j)), "status", fmt.Sprintf("ref%d", j))
			case 3:
				_ = unstructured.SetNestedField(o.Object, "pvc-"+string(uid(j)), "spec", fmt.Sprintf("name%d", j))
			}
		}
		objects[i] = o
	}
	roots := map[types.UID]bool{uid(0): true}
	if n > 1 && r.IntN(2) == 0 {
		roots[uid(1)] = true
	}
	return objects, roots
}

// TestRemapOfRandomGraphs copies graphs as a move does, but in memory. No copy is created with an
// owner that does not exist. At the end all owners and mentions refer to copies.
func TestRemapOfRandomGraphs(t *testing.T) {
	cycles := 0
	for seed := range uint64(1000) {
		objects, roots := randomGraph(rand.New(rand.NewPCG(seed, 7)))
		all := make([]metav1.Object, len(objects))
		for i := range objects {
			all[i] = objects[i]
		}
		members := Members(all, roots)
		inside := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return !members[o.GetUID()] })
		g := Assemble(inside, roots)
		m := &Mover{graph: g, plan: &Plan{ID: g.ID()}, uids: map[types.UID]types.UID{}, copied: map[types.UID]string{}}
		k := kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}}
		copies := map[types.UID]*unstructured.Unstructured{}
		var unfinished []*Item
		exists := map[types.UID]bool{}
		for i, item := range g.moved() {
			cycles += len(item.Late)
			complete := m.knowsAll(item)
			copied := m.desired(item, k)
			for _, uid := range ownerUIDs(copied) {
				if !exists[uid] {
					t.Fatalf("seed %d: %s is created with an owner that does not exist", seed, item)
				}
			}
			uid := types.UID(fmt.Sprintf("ffffffff-0000-0000-0000-%012d", i))
			m.uids[item.UID()], exists[uid] = uid, true
			copies[item.UID()] = copied
			if !complete {
				unfinished = append(unfinished, item)
			}
		}
		for _, item := range unfinished {
			copies[item.UID()] = m.desired(item, k)
		}
		for _, item := range g.moved() {
			copied := copies[item.UID()]
			want := map[types.UID]bool{}
			for _, uid := range ownerUIDs(item.Object) {
				if members[uid] {
					want[m.uids[uid]] = true
				}
			}
			got := map[types.UID]bool{}
			for _, uid := range ownerUIDs(copied) {
				got[uid] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d: owners of %s:\n%s", seed, item, diff)
			}
			own := markOf(copied)
			if own.from != item.UID() || own.Move != g.ID() {
				t.Fatalf("seed %d: %s is marked %+v", seed, item, own)
			}
			transplant.DropAnnotations(copied, isMark)
			left := map[types.UID]bool{}
			transplant.Mentions(copied.Object, func(uid types.UID) bool { return members[uid] }, left)
			if len(left) > 0 {
				t.Fatalf("seed %d: %s still mentions %v", seed, item, left)
			}
			before, after := map[types.UID]bool{}, map[types.UID]bool{}
			any := func(types.UID) bool { return true }
			transplant.Mentions(item.Object.Object["spec"], any, before)
			transplant.Mentions(copied.Object["spec"], any, after)
			if len(before) != len(after) {
				t.Fatalf("seed %d: the spec of %s mentioned %v, and its copy %v", seed, item, before, after)
			}
		}
	}
	if cycles < 100 {
		t.Errorf("only %d cycles: too few for a meaningful test", cycles)
	}
}
