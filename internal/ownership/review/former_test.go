// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
)

var tools = resource("example.com", "v1", "tools", "Tool", true)

// withoutTools returns a world whose CRD of tools was deleted, with the former tool t1 and a pod
// that it owned.
func withoutTools(t *testing.T) (*world, *memory) {
	w, m := newWorld(t), &memory{}
	m.deleted(crds, "", "tools.example.com", 1, kubectl, nil)
	m.deleted(tools, "a", "t1", 2, deletion.Caller{User: "system:apiserver"}, nil)
	m.deleted(pods, "a", "one", 3, collecting, ownedBy(tools, "t1"))
	return w, m
}

// define adds the CRD to the history.
func (m *memory) define() {
	m.was(crds, "", "tools.example.com", func(o *unstructured.Unstructured) {
		o.Object["spec"] = map[string]any{
			"scope": "Namespaced",
			"names": map[string]any{"kind": "Tool", "singular": "tool", "shortNames": []any{"tl"}},
			"versions": []any{
				map[string]any{"name": "v1alpha1", "storage": false},
				map[string]any{"name": "v1", "storage": true},
			},
		}
	})
}

// TestExplanationsWithoutTheDefinition: an object whose CRD was deleted is explained from its
// record, by all names of its kind.
func TestExplanationsWithoutTheDefinition(t *testing.T) {
	w, m := withoutTools(t)
	m.define()
	story1 := []string{"Gone", "Tool/t1 by Server CustomResourceDefinition/tools.example.com", "CustomResourceDefinition/tools.example.com by User"}
	ask := func(typed string) (ownership.OwnershipExplanationStatus, error) {
		return w.explainSpec(m, ownership.OwnershipExplanationSpec{Type: typed, Object: ownership.ObjectReference{Namespace: "a", Name: "t1"}})
	}
	for _, typed := range []string{"tool", "tools", "Tool", "tl", "tool.example.com", "tools.example.com", "tools.v1.example.com", "tl.example.com"} {
		s, err := ask(typed)
		if err != nil {
			t.Errorf("%s: %v", typed, err)
			continue
		}
		if diff := gocmp.Diff(story1, story(s)); diff != "" || s.Object.APIVersion != "example.com/v1" {
			t.Errorf("%s: %+v\n%s", typed, s.Object, diff)
		}
	}
	for _, typed := range []string{"too", "tool.other.com", "hammers", "tool.", "."} {
		if _, err := ask(typed); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "no deleted definition of that name is known") {
			t.Errorf("%s: %v", typed, err)
		}
	}
	t1 := ownership.ObjectReference{APIVersion: "example.com/v1", Kind: "Tool", Namespace: "a", Name: "t1"}
	s, err := w.explain(m, t1)
	if diff := gocmp.Diff(story1, story(s)); err != nil || diff != "" {
		t.Errorf("by its kind: %v, %s", err, diff)
	}
	s, err = w.explain(m, pod("one"))
	if diff := gocmp.Diff(append([]string{"Gone", "Pod/one by GarbageCollector Tool/t1"}, story1[1:]...), story(s)); err != nil || diff != "" {
		t.Errorf("its dependent: %v, %s", err, diff)
	}
	if _, err := w.explainSpec(m, ownership.OwnershipExplanationSpec{Type: "tool", Object: t1}); !apierrors.IsInvalid(err) {
		t.Errorf("type together with kind: %v", err)
	}

	// A caller who may not get tools learns nothing about the tool or about a pod's owner.
	w.allowed = func(a authorizer.Attributes) bool { return a.GetResource() != "tools" }
	if _, err := ask("tool"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "tools.example.com") {
		t.Errorf("without permission: %v", err)
	}
	s, err = w.explain(m, pod("one"))
	if err != nil || !slices.Equal(story(s), []string{"Gone", "Pod/one by GarbageCollector"}) || s.Hidden != 1 {
		t.Errorf("without permission, its dependent: %v, %+v", err, s)
	}
}

// TestGuessedKinds checks that a kind is guessed from the name of its definition if the history no
// longer has the definition.
func TestGuessedKinds(t *testing.T) {
	w, m := withoutTools(t)
	for _, typed := range []string{"tool", "tools", "Tool", "tools.example.com"} {
		s, err := w.explainSpec(m, ownership.OwnershipExplanationSpec{Type: typed, Object: ownership.ObjectReference{Namespace: "a", Name: "t1"}})
		if err != nil || len(s.Deletions) != 2 || s.Object.Kind != "Tool" {
			t.Errorf("%s: %v, %+v", typed, err, s)
		}
	}
	for plural, want := range map[string]string{"tools": "Tool", "boxes": "Box", "policies": "Policy", "sheep": "Sheep", "gateways": "Gateway"} {
		r := tools.GroupResource()
		r.Resource = plural
		if k := guessedKind(r, true); k.Kind != want {
			t.Errorf("%s: %s, want %s", plural, k.Kind, want)
		}
	}
}
