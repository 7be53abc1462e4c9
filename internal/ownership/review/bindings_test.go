// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// setsOf adds two Clusters, each with an object that it owns and with the binding of a ClusterResourceSet.
func setsOf(w *world) {
	w.add(spaces, "", "a", nil)
	w.add(resourceSets, "a", "set", nil)
	for _, name := range []string{"one", "two"} {
		w.add(clusters, "a", name, nil)
		w.add(configMaps, "a", "of-"+name, ownedBy(clusters, name))
		w.add(bindings, "a", "binding-"+name, func(o *unstructured.Unstructured) {
			ownedBy(resourceSets, "set")(o)
			o.Object["spec"] = map[string]any{"clusterName": name}
		})
	}
}

// TestPreviewOfBindings: a preview shows the ClusterResourceSetBinding that Cluster API deletes with a Cluster, which does not own it.
func TestPreviewOfBindings(t *testing.T) {
	foreground, orphan := metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	for name, tt := range map[string]struct {
		targets []ownership.DeletionTarget
		policy  *metav1.DeletionPropagation
		want    []string
		with    []string
	}{
		"a Cluster": {
			targets: []ownership.DeletionTarget{target(clusters, "a", "one")},
			want:    []string{"one Deleted target", "of-one Deleted", "binding-one Deleted"}, with: []string{"binding-one with one"},
		},
		"in the foreground": {
			targets: []ownership.DeletionTarget{target(clusters, "a", "one")}, policy: &foreground,
			want: []string{"one Deleted target", "of-one Deleted", "binding-one Deleted"}, with: []string{"binding-one with one"},
		},
		"without its dependents": {
			targets: []ownership.DeletionTarget{target(clusters, "a", "one")}, policy: &orphan,
			want: []string{"one Deleted target", "of-one Orphaned", "binding-one Deleted"}, with: []string{"binding-one with one"},
		},
		"two Clusters": {
			targets: []ownership.DeletionTarget{target(clusters, "a", "one"), target(clusters, "a", "two")},
			want:    []string{"one Deleted target", "two Deleted target", "of-one Deleted", "of-two Deleted", "binding-one Deleted", "binding-two Deleted"},
			with:    []string{"binding-one with one", "binding-two with two"},
		},
		"the set as well": {
			targets: []ownership.DeletionTarget{target(clusters, "a", "one"), target(resourceSets, "a", "set")},
			want:    []string{"set Deleted target", "one Deleted target", "of-one Deleted", "binding-one Deleted", "binding-two Deleted"},
		},
		"their namespace": {
			targets: []ownership.DeletionTarget{target(spaces, "", "a")},
			want:    []string{"a Deleted target", "of-one Deleted", "of-two Deleted", "binding-one Deleted", "binding-two Deleted", "set Deleted", "one Deleted", "two Deleted"},
		},
		"no Cluster": {
			targets: []ownership.DeletionTarget{target(configMaps, "a", "of-one")}, want: []string{"of-one Deleted target"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			setsOf(w)
			s, err := w.preview(ownership.DeletionPreviewSpec{Targets: tt.targets, PropagationPolicy: tt.policy})
			if err != nil {
				t.Fatal(err)
			}
			got := outcomes(s)
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			var with []string
			for _, o := range s.Objects {
				if o.DeletedWith != nil {
					with = append(with, o.Name+" with "+o.DeletedWith.Name)
				}
			}
			if diff := cmp.Diff(tt.with, with); diff != "" {
				t.Error(diff)
			}
			if len(s.Objects) > 0 && !s.Objects[0].Target {
				t.Errorf("the first object is %+v", s.Objects[0])
			}
		})
	}
}

// TestPreviewHidesBindings: a binding that the caller may not read is counted only.
func TestPreviewHidesBindings(t *testing.T) {
	w := newWorld(t)
	setsOf(w)
	w.allowed = func(a authorizer.Attributes) bool { return a.GetResource() != "clusterresourcesetbindings" }
	s, err := w.preview(ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{target(clusters, "a", "one")}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one Deleted target", "of-one Deleted"}, outcomes(s)); diff != "" || s.Hidden != 1 {
		t.Errorf("hidden %d: %s", s.Hidden, diff)
	}
}
