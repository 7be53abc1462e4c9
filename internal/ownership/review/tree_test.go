// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func (w *world) tree(spec ownership.OwnershipTreeSpec) (ownership.OwnershipTreeStatus, error) {
	w.t.Helper()
	review := &ownership.OwnershipTree{Spec: spec}
	err := w.create(w.reviews().OwnershipTrees(w.policy()), review)
	return review.Status, err
}

func named(objects []ownership.TreeObject) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.Name)
	}
	return names
}

func middle(w *world) ownership.ObjectReference {
	w.add(spaces, "", "cluster-wide", nil)
	w.add(configMaps, "a", "top", ownedBy(spaces, "cluster-wide"))
	w.add(configMaps, "a", "middle", ownedBy(configMaps, "top"))
	w.add(pods, "a", "leaf-1", ownedBy(configMaps, "middle"))
	w.add(pods, "a", "leaf-2", ownedBy(configMaps, "middle"))
	w.add(pods, "a", "below", ownedBy(pods, "leaf-1"))
	return ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "middle"}
}

func TestTree(t *testing.T) {
	w := newWorld(t)
	s, err := w.tree(ownership.OwnershipTreeSpec{Object: middle(w)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"top", "cluster-wide"}, named(s.Owners)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"middle", "leaf-1", "leaf-2", "below"}, named(s.Objects)); diff != "" {
		t.Error(diff)
	}
	if s.Objects[0].Readiness != ownership.ReadinessReady || s.Objects[1].Readiness != ownership.ReadinessInProgress {
		t.Errorf("readiness %s and %s", s.Objects[0].Readiness, s.Objects[1].Readiness)
	}
	if got := s.Objects[1].Owners; len(got) != 1 || got[0].Standing != ownership.StandingSolid {
		t.Errorf("owners %+v", got)
	}
}

func TestTreeDepth(t *testing.T) {
	for depth, want := range map[int32][]string{0: {"middle"}, 1: {"middle", "leaf-1", "leaf-2"}} {
		w := newWorld(t)
		s, err := w.tree(ownership.OwnershipTreeSpec{Object: middle(w), Depth: &depth})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, named(s.Objects)); diff != "" {
			t.Error(diff)
		}
	}
	w, negative := newWorld(t), int32(-1)
	if _, err := w.tree(ownership.OwnershipTreeSpec{Object: middle(w), Depth: &negative}); !apierrors.IsInvalid(err) {
		t.Errorf("error %v", err)
	}
}

// TestTreeOfMany has so many objects in a namespace that they are listed rather than read one by
// one.
func TestTreeOfMany(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, "a", "root", nil)
	for i := range 3 * few {
		w.add(pods, "a", fmt.Sprintf("pod-%02d", i), ownedBy(configMaps, "root"))
	}
	s, err := w.tree(ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "root"}})
	if err != nil {
		t.Fatal(err)
	}
	if names := named(s.Objects); len(names) != 3*few+1 || !slices.IsSorted(names[1:]) {
		t.Errorf("objects %v", names)
	}
}

func TestTreeOfWhatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	now := metav1.Now()
	w.add(configMaps, "a", "root", func(o *unstructured.Unstructured) {
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{metav1.FinalizerDeleteDependents, "example.com/hold"})
	})
	w.add(pods, "a", "child", ownedBy(configMaps, "root"))
	w.allowed = func(a authorizer.Attributes) bool { return a.GetResource() == "configmaps" }
	s, err := w.tree(ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "root"}})
	if err != nil {
		t.Fatal(err)
	}
	var waits []string
	for _, b := range s.Objects[0].WaitsFor {
		waits = append(waits, blockText(b))
	}
	if diff := cmp.Diff([]string{"example.com/hold", "something hidden"}, waits); diff != "" || s.Objects[0].DeletionTimestamp == nil || s.Hidden != 1 {
		t.Errorf("hidden %d, deletion %v: %s", s.Hidden, s.Objects[0].DeletionTimestamp, diff)
	}
}

// TestTreeOrder checks that siblings are sorted by kind, group, namespace and name in every status.
func TestTreeOrder(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, "a", "root", nil)
	w.add(widgets, "a", "a", ownedBy(configMaps, "root"))
	w.add(jobs, "a", "z", ownedBy(configMaps, "root"))
	w.add(jobs, "a", "b", ownedBy(configMaps, "root"))
	w.add(pods, "a", "c", ownedBy(configMaps, "root"))
	s, err := w.tree(ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "root"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"root", "b", "z", "c", "a"}, named(s.Objects)); diff != "" {
		t.Error(diff)
	}
}

// TestTreeLeavesInvalidOwnersOut: an object that is referred to from another namespace is not an
// owner, although it has the UID.
func TestTreeLeavesInvalidOwnersOut(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, "a", "root", nil)
	w.add(configMaps, "b", "stranger", ownedBy(configMaps, "root"))
	for name, namespace := range map[string]string{"root": "a", "stranger": "b"} {
		s, err := w.tree(ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Owners) != 0 || len(s.Objects) != 1 {
			t.Errorf("the tree of %s has owners %v and objects %v", name, s.Owners, s.Objects)
		}
	}
}
