// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// shared adds an object with two owners to a world.
func shared(w *world) {
	w.add(configMaps, "a", "one", nil)
	w.add(configMaps, "a", "two", nil)
	w.add(pods, "a", "shared", ownedBy(configMaps, "one", "two"))
}

func chain(w *world) {
	w.add(configMaps, "a", "root", nil)
	w.add(configMaps, "a", "middle", ownedBy(configMaps, "root"))
	w.add(pods, "a", "leaf", ownedBy(configMaps, "middle"))
}

func withUID(t ownership.DeletionTarget, uid types.UID) ownership.DeletionTarget {
	t.UID = uid
	return t
}

// TestPreviewOfSeveral checks that several targets are previewed as one deletion.
func TestPreviewOfSeveral(t *testing.T) {
	foreground, orphan := metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	labelled := func(change func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if change != nil {
				change(o)
			}
			o.SetLabels(map[string]string{"app": "x"})
		}
	}
	type targets = []ownership.DeletionTarget
	for _, tt := range []struct {
		name     string
		fill     func(*world)
		targets  targets
		policy   *metav1.DeletionPropagation
		want     []string
		warnings string
	}{
		{
			"all owners of an object", shared,
			targets{target(configMaps, "a", "one"), target(configMaps, "a", "two")}, nil,
			[]string{"one Deleted target", "two Deleted target", "shared Deleted"}, "",
		},
		{
			"all owners, in the foreground", func(w *world) {
				shared(w)
				w.add(pods, "a", "held", held(ownedBy(pods, "shared"), "example.com/hold"))
			}, targets{target(configMaps, "a", "one"), target(configMaps, "a", "two")}, &foreground,
			[]string{
				"one Deleted target blocked by shared", "two Deleted target blocked by shared",
				"shared Deleted blocked by held", "held Deleted blocked by example.com/hold",
			}, "",
		},
		{
			"all owners let it go", shared,
			targets{target(configMaps, "a", "one"), target(configMaps, "a", "two")}, &orphan,
			[]string{"one Deleted target", "two Deleted target", "shared Orphaned"}, "",
		},
		{
			"a dependent before its owner", chain,
			targets{target(pods, "a", "leaf"), target(configMaps, "a", "root")}, nil,
			[]string{"root Deleted target", "leaf Deleted target", "middle Deleted"}, "",
		},
		{
			"an owner without its dependents, and one of these", chain,
			targets{target(configMaps, "a", "middle"), target(configMaps, "a", "root")}, &orphan,
			[]string{"root Deleted target", "middle Deleted target", "leaf Orphaned"}, "",
		},
		{
			"an object twice", chain,
			targets{target(configMaps, "a", "middle"), target(configMaps, "a", "middle")}, nil,
			[]string{"middle Deleted target", "leaf Deleted"}, "middle is controlled by ConfigMap root",
		},
		{
			"a selector, and one that it chooses", func(w *world) {
				shared(w)
				w.add(pods, "a", "chosen", labelled(nil))
			}, targets{{APIVersion: "v1", Kind: "Pod", Namespace: "a", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}, target(pods, "a", "chosen"), target(configMaps, "a", "one")}, nil,
			[]string{"chosen Deleted target", "one Deleted target", "shared Kept kept by two Solid"}, "",
		},
		{
			"policies of several kinds", func(w *world) {
				w.add(jobs, "a", "job", nil)
				w.add(configMaps, "a", "one", nil)
				w.add(pods, "a", "of-job", ownedBy(jobs, "job"))
				w.add(pods, "a", "of-one", ownedBy(configMaps, "one"))
			}, targets{target(configMaps, "a", "one"), target(jobs, "a", "job")}, nil,
			[]string{"one Deleted target", "job Deleted target", "of-job Orphaned", "of-one Deleted"}, "",
		},
		{
			"policies that compete", func(w *world) {
				w.add(configMaps, "a", "one", nil)
				w.add(jobs, "a", "job", nil)
				w.add(pods, "a", "both", func(o *unstructured.Unstructured) {
					ownedBy(configMaps, "one")(o)
					refs := o.GetOwnerReferences()
					ownedBy(jobs, "job")(o)
					o.SetOwnerReferences(append(refs, o.GetOwnerReferences()...))
				})
			}, targets{target(configMaps, "a", "one"), target(jobs, "a", "job")}, nil,
			[]string{"one Deleted target", "job Deleted target", "both Deleted"},
			"the outcome for Pod both depends on the order: deleted if all targets are deleted at once, orphaned if the garbage collector finishes one before the next",
		},
		{
			"a namespace, and an object in it", func(w *world) {
				w.add(spaces, "", "a", nil)
				shared(w)
				w.add(pods, "b", "elsewhere", nil)
			}, targets{target(pods, "b", "elsewhere"), target(configMaps, "a", "one"), target(spaces, "", "a")}, nil,
			[]string{"a Deleted target", "elsewhere Deleted target", "one Deleted target", "two Deleted", "shared Deleted"}, "",
		},
		{
			"a definition, a namespace, and what is in both", func(w *world) {
				w.add(spaces, "", "a", nil)
				w.add(crds, "", "widgets.example.com", held(nil, cleanup))
				w.add(widgets, "a", "both", held(nil, "example.com/hold"))
				w.add(widgets, "b", "other", nil)
			}, targets{target(widgets, "a", "both"), target(crds, "", "widgets.example.com"), target(spaces, "", "a")}, nil,
			[]string{
				"widgets.example.com Deleted target blocked by both", "a Deleted target blocked by both",
				"both Deleted target blocked by example.com/hold", "other Deleted",
			}, "",
		},
		{
			"two of a cycle", func(w *world) {
				w.add(configMaps, "a", "one", ownedBy(configMaps, "three"))
				w.add(configMaps, "a", "two", ownedBy(configMaps, "one"))
				w.add(configMaps, "a", "three", ownedBy(configMaps, "two"))
			}, targets{target(configMaps, "a", "one"), target(configMaps, "a", "three")}, &foreground,
			// A cycle has no first or last object: the collector deletes all of it.
			[]string{"one Deleted target", "three Deleted target", "two Deleted"}, "",
		},
		{
			"some that are gone, or not those that are meant", shared,
			targets{
				withUID(target(configMaps, "a", "one"), "one"), withUID(target(configMaps, "a", "two"), "former"),
				withUID(target(configMaps, "a", "gone"), "gone"), withUID(ownership.DeletionTarget{APIVersion: "gone.example.com/v1", Kind: "Gone", Name: "x"}, "x"),
			}, nil,
			[]string{"one Deleted target", "shared Kept kept by two Solid"}, "",
		},
		{
			"none of which is left", shared,
			targets{withUID(target(configMaps, "a", "gone"), "gone")}, nil, nil, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.fill(w)
			s, err := w.preview(ownership.DeletionPreviewSpec{Targets: tt.targets, PropagationPolicy: tt.policy})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, outcomes(s)); diff != "" {
				t.Error(diff)
			}
			if got := strings.Join(s.Warnings, "\n"); !strings.Contains(got, tt.warnings) || (got == "") != (tt.warnings == "") {
				t.Errorf("warnings %q", got)
			}
		})
	}
}

// TestPreviewOfMany names so many objects that they are listed rather than read one by one.
func TestPreviewOfMany(t *testing.T) {
	w := newWorld(t)
	var targets []ownership.DeletionTarget
	for i := range 3 * few {
		w.add(pods, "a", fmt.Sprintf("pod-%02d", i), nil)
		targets = append(targets, target(pods, "a", fmt.Sprintf("pod-%02d", i)))
	}
	s, err := w.preview(ownership.DeletionPreviewSpec{Targets: targets})
	if err != nil || s.Deleted != int32(len(targets)) {
		t.Errorf("%d of %d are deleted: %v", s.Deleted, len(targets), err)
	}
	_, err = w.preview(ownership.DeletionPreviewSpec{Targets: append(targets, target(pods, "a", "none"))})
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `pods "none" not found`) {
		t.Errorf("error %v", err)
	}
}

// TestPreviewOfSeveralRefusals: if one target is invalid, the preview fails, because an answer
// about the others would not describe the deletion.
func TestPreviewOfSeveralRefusals(t *testing.T) {
	one := target(configMaps, "a", "one")
	for _, tt := range []struct {
		name string
		spec ownership.DeletionPreviewSpec
		want string
		is   func(error) bool
	}{
		{"neither target nor targets", ownership.DeletionPreviewSpec{}, "spec.target: Required value: either target or targets", apierrors.IsInvalid},
		{"both", ownership.DeletionPreviewSpec{Target: &one, Targets: []ownership.DeletionTarget{one}}, "spec.targets: Forbidden", apierrors.IsInvalid},
		{"one without a name", ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{one, target(pods, "a", "")}}, "spec.targets[1].name: Required", apierrors.IsInvalid},
		{"a UID beside a selector", ownership.DeletionPreviewSpec{Target: &ownership.DeletionTarget{APIVersion: "v1", Kind: "Pod", UID: "x", Selector: &metav1.LabelSelector{}}}, "spec.target.uid: Forbidden", apierrors.IsInvalid},
		{"one that does not exist", ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{one, target(pods, "a", "none")}}, `pods "none" not found`, apierrors.IsNotFound},
		{"one that may not be read", ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{one, target(configMaps, "a", "secret")}}, `cannot get resource "configmaps"`, apierrors.IsForbidden},
		{"one that may not be read, by UID", ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{withUID(target(configMaps, "a", "secret"), "x")}}, `cannot get resource "configmaps"`, apierrors.IsForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			shared(w)
			w.allowed = func(a authorizer.Attributes) bool { return a.GetName() != "" && a.GetName() != "secret" }
			_, err := w.preview(tt.spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !tt.is(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestPreviewOfWhatIsBeingDeleted: objects that are already being deleted are marked, and a warning
// names objects that the caller may read but not delete.
func TestPreviewOfWhatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	now := metav1.Now()
	w.add(configMaps, "a", "one", func(o *unstructured.Unstructured) {
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{"example.com/hold"})
	})
	w.add(configMaps, "a", "two", nil)
	w.allowed = func(a authorizer.Attributes) bool { return a.GetVerb() == "get" || a.GetName() == "one" }
	s, err := w.preview(ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{target(configMaps, "a", "one"), target(configMaps, "a", "two")}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one Deleted target blocked by example.com/hold", "two Deleted target"}, outcomes(s)); diff != "" {
		t.Error(diff)
	}
	if !s.Objects[0].Deleting || s.Objects[1].Deleting {
		t.Errorf("already being deleted: %v and %v", s.Objects[0].Deleting, s.Objects[1].Deleting)
	}
	if diff := cmp.Diff([]string{"you may not delete ConfigMap two"}, s.Warnings); diff != "" {
		t.Error(diff)
	}
}

// TestPreviewOfWhatGoesMeanwhile: a target that was read, and deleted before the collector has
// observed that state, is reported as deleted. A client that deletes several targets sends such
// previews.
func TestPreviewOfWhatGoesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		uid   types.UID
		check func(error) bool
	}{
		"by name": {check: apierrors.IsNotFound},
		"by UID":  {uid: "one", check: func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(configMaps, "a", "one", nil)
			w.graph.Forget(configMaps.GroupResource(), w.objects[0].(*unstructured.Unstructured))
			w.gets = new(1)
			s, err := w.preview(ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{
				{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "one", UID: c.uid},
			}})
			if !c.check(err) || len(s.Objects) > 0 {
				t.Errorf("the preview has %v, error %v", outcomes(s), err)
			}
		})
	}
}
