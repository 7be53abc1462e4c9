// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDiffers: a move of Cluster API is complete when everything is there, with its owners, and the controllers have resumed.
func TestDiffers(t *testing.T) {
	resumed := func(o *unstructured.Unstructured, paused metav1.ConditionStatus) *unstructured.Unstructured {
		return with(o, []any{map[string]any{"type": "Paused", "status": string(paused)}}, "status", "conditions")
	}
	cluster := func() *unstructured.Unstructured {
		return resumed(capi("Cluster", "c"), metav1.ConditionFalse)
	}
	machine := func() *unstructured.Unstructured {
		return resumed(capi("Machine", "m", "c"), metav1.ConditionFalse)
	}
	for name, tt := range map[string]struct {
		copies, now []*unstructured.Unstructured
		missing     []Ref
		want        []string
	}{
		"complete":     {[]*unstructured.Unstructured{cluster(), machine()}, []*unstructured.Unstructured{cluster(), machine()}, nil, nil},
		"continued":    {nil, []*unstructured.Unstructured{cluster(), machine()}, nil, nil},
		"more owners":  {[]*unstructured.Unstructured{cluster(), capi("Machine", "m")}, []*unstructured.Unstructured{cluster(), machine()}, nil, nil},
		"no condition": {nil, []*unstructured.Unstructured{capi("Cluster", "c")}, nil, nil},
		"gone": {
			[]*unstructured.Unstructured{cluster(), machine()}, []*unstructured.Unstructured{cluster()}, nil,
			[]string{"machine.cluster.x-k8s.io/m in namespace ns does not exist any more"},
		},
		"an owner is lost": {
			[]*unstructured.Unstructured{cluster(), machine()}, []*unstructured.Unstructured{cluster(), resumed(capi("Machine", "m"), metav1.ConditionFalse)}, nil,
			[]string{"machine.cluster.x-k8s.io/m in namespace ns has lost its owner Any c"},
		},
		"not resumed": {
			nil, []*unstructured.Unstructured{cluster(), resumed(capi("Machine", "m", "c"), metav1.ConditionTrue)}, nil,
			[]string{"the controller of machine.cluster.x-k8s.io/m in namespace ns has not resumed"},
		},
		"paused by somebody": {
			nil, []*unstructured.Unstructured{with(cluster(), true, "spec", "paused"), resumed(capi("Machine", "m", "c"), metav1.ConditionTrue)}, nil, nil,
		},
		"a root is missing": {
			nil, nil, []Ref{{capi("Cluster", "c").GroupVersionKind(), "ns", "c"}}, []string{"cluster.cluster.x-k8s.io/c in namespace ns does not exist"},
		},
		"other kinds": {[]*unstructured.Unstructured{object("v1", "Pod", "p")}, []*unstructured.Unstructured{cluster()}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var there []runtime.Object
			for _, o := range tt.now {
				there = append(there, o)
			}
			m := &Mover{Options: Options{Target: servingProviders("there", there...)}, copies: tt.copies}
			var g *Graph
			if tt.now != nil {
				g = Assemble(tt.now, rootsOfTest("c"))
			}
			got, err := m.differs(t.Context(), g, tt.missing)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStaleOwners: an owner at the target that is not part of the move must exist, with that UID.
func TestStaleOwners(t *testing.T) {
	owner := object(infraVersion, "Identity", "owner")
	another := owner.DeepCopy()
	another.SetUID("another")
	const wrong = "machine.cluster.x-k8s.io/m in namespace ns names an owner that does not exist: Identity owner"
	for name, tt := range map[string]struct {
		there *Cluster
		want  []string
	}{
		"exists":   {servingProviders("there", owner), nil},
		"replaced": {servingProviders("there", another), []string{wrong}},
		"gone":     {servingProviders("there"), []string{wrong}},
	} {
		t.Run(name, func(t *testing.T) {
			o := capi("Machine", "m")
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: infraVersion, Kind: "Identity", Name: "owner", UID: owner.GetUID()}})
			m := &Mover{Options: Options{Target: tt.there}}
			got, err := m.differs(t.Context(), Assemble([]*unstructured.Unstructured{o}, rootsOfTest("m")), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
