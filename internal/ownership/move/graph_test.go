// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// object returns an object whose UID is its name. Its first owner is its controller.
func object(apiVersion, kind, name string, owners ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	o.SetName(name)
	o.SetNamespace("ns")
	o.SetUID(types.UID(name))
	var refs []metav1.OwnerReference
	for i, owner := range owners {
		controller := i == 0
		refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Any", Name: owner, UID: types.UID(owner), Controller: &controller})
	}
	o.SetOwnerReferences(refs)
	return o
}

func slice(name, managedBy string, owners ...string) *unstructured.Unstructured {
	o := object("discovery.k8s.io/v1", "EndpointSlice", name, owners...)
	o.SetLabels(map[string]string{"endpointslice.kubernetes.io/managed-by": managedBy})
	return o
}

func TestAssemble(t *testing.T) {
	type of = []*unstructured.Unstructured
	for _, tt := range []struct {
		name    string
		objects of
		roots   []string
		// want is the order of names; Remade objects are in brackets.
		want    []string
		outside map[string][]string
		late    map[string][]string
	}{
		{
			name:    "a Deployment",
			objects: of{object("v1", "Pod", "p", "rs"), object("apps/v1", "ReplicaSet", "rs", "d"), object("apps/v1", "Deployment", "d")},
			roots:   []string{"d"}, want: []string{"d", "rs", "[p]"},
		},
		{
			name:    "a pod whose controller is outside of the graph is copied",
			objects: of{object("v1", "Pod", "p", "elsewhere"), object("v1", "Pod", "q")},
			roots:   []string{"p", "q"}, want: []string{"p", "q"}, outside: map[string][]string{"p": {"elsewhere"}},
		},
		{
			name:    "an object that only a Remade pod owns is Remade, and one with another owner is copied",
			objects: of{object("apps/v1", "StatefulSet", "s"), object("v1", "Pod", "p", "s"), object("v1", "ConfigMap", "c", "p"), object("v1", "Secret", "k", "p", "s")},
			roots:   []string{"s"}, want: []string{"s", "[p]", "[c]", "k"}, outside: map[string][]string{"k": {"p"}, "c": {"p"}},
		},
		{
			name:    "EndpointSlices of the controller are Remade, others are copied",
			objects: of{object("v1", "Service", "s"), slice("auto", "endpointslice-controller.k8s.io", "s"), slice("own", "example.com", "s")},
			roots:   []string{"s"}, want: []string{"s", "[auto]", "own"},
		},
		{
			name:    "an owner outside",
			objects: of{object("v1", "ConfigMap", "a"), object("v1", "ConfigMap", "b", "a", "x")},
			roots:   []string{"a"}, want: []string{"a", "b"}, outside: map[string][]string{"b": {"x"}},
		},
		{
			name:    "a cycle and its dependents",
			objects: of{object("v1", "ConfigMap", "a", "c"), object("v1", "ConfigMap", "b", "c"), object("v1", "ConfigMap", "c", "b")},
			roots:   []string{"b"}, want: []string{"c", "a", "b"}, late: map[string][]string{"c": {"b"}},
		},
		{
			name:    "an object that owns itself",
			objects: of{object("v1", "ConfigMap", "a", "a")},
			roots:   []string{"a"}, want: []string{"a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			roots := map[types.UID]bool{}
			for _, root := range tt.roots {
				roots[types.UID(root)] = true
			}
			g := Assemble(tt.objects, roots)
			var got []string
			outside, late := map[string][]string{}, map[string][]string{}
			for _, item := range g.Items {
				name := item.Object.GetName()
				for _, ref := range item.Outside {
					outside[name] = append(outside[name], ref.Name)
				}
				for _, uid := range item.Late {
					late[name] = append(late[name], string(uid))
				}
				if item.Fate == Remade {
					name = "[" + name + "]"
				}
				got = append(got, name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if tt.outside == nil {
				tt.outside = map[string][]string{}
			}
			if tt.late == nil {
				tt.late = map[string][]string{}
			}
			if diff := cmp.Diff(tt.outside, outside) + cmp.Diff(tt.late, late); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOrderOfRandomGraphs: each member is listed once, after its owners, except in cycles.
func TestOrderOfRandomGraphs(t *testing.T) {
	for seed := range uint64(1000) {
		objects, roots := randomGraph(rand.New(rand.NewPCG(seed, 3)))
		g := Assemble(objects, roots)
		at := map[types.UID]int{}
		for i, item := range g.Items {
			at[item.UID()] = i
		}
		if len(g.Items) != len(objects) || len(at) != len(objects) {
			t.Fatalf("seed %d: %d of %d objects", seed, len(at), len(objects))
		}
		for i, item := range g.Items {
			for _, uid := range ownerUIDs(item.Object) {
				after := at[uid] > i
				if after != slices.Contains(item.Late, uid) {
					t.Fatalf("seed %d: owner %s comes after %s: %v, late are %v", seed, uid, item, after, item.Late)
				}
				if after && !owns(g, item.UID(), uid) {
					t.Fatalf("seed %d: owner %s comes after %s, and they are not in a cycle", seed, uid, item)
				}
			}
		}
	}
}

// owns reports whether an object owns another directly or indirectly.
func owns(g *Graph, owner, uid types.UID) bool {
	seen := map[types.UID]bool{}
	var up func(types.UID) bool
	up = func(at types.UID) bool {
		if at == owner {
			return true
		}
		if seen[at] {
			return false
		}
		seen[at] = true
		return slices.ContainsFunc(ownerUIDs(g.byUID[at].Object), up)
	}
	return up(uid)
}

func TestMembers(t *testing.T) {
	all := []metav1.Object{
		object("v1", "ConfigMap", "root"), object("v1", "ConfigMap", "child", "root"), object("v1", "ConfigMap", "grandchild", "child", "absent"),
		object("v1", "ConfigMap", "stranger", "absent"), object("v1", "ConfigMap", "sibling"),
	}
	got := Members(all, map[types.UID]bool{"root": true, "absent": true})
	want := map[types.UID]bool{"root": true, "child": true, "grandchild": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestID(t *testing.T) {
	if ID([]types.UID{"a", "b"}) != ID([]types.UID{"b", "a", "a"}) {
		t.Error("the ID of a move depends on the order of its roots")
	}
	if ID([]types.UID{"a", "b"}) == ID([]types.UID{"a"}) || ID([]types.UID{"ab"}) == ID([]types.UID{"a", "b"}) {
		t.Error("moves with different roots have the same ID")
	}
}

// TestInheritedMarks: a mark that a controller copied with other annotations to a dependent is not
// the dependent's own.
func TestInheritedMarks(t *testing.T) {
	owner, owned := object("apps/v1", "Deployment", "web"), object("apps/v1", "ReplicaSet", "web-1", "web")
	of := func(o *unstructured.Unstructured, from types.UID) mark {
		return mark{Move: "m", For: short(o.GroupVersionKind().GroupKind(), o.GetName()), from: from, Digest: "d"}
	}
	a, b := of(owner, "a"), of(owned, "b")
	owned.SetAnnotations(map[string]string{a.key(): a.text(), b.key(): b.text(), "other": "x"})
	if got := markOf(owned); got != b {
		t.Errorf("mark %+v, want %+v", got, b)
	}
	owned.SetAnnotations(map[string]string{a.key(): a.text()})
	if got := markOf(owned); got != (mark{}) {
		t.Errorf("an inherited mark counts as the object's own: %+v", got)
	}
}
