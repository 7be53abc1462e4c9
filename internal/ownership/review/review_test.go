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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

func resource(group, version, plural, kind string, namespaced bool) graph.Resource {
	return graph.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
		Kind:                 kind, Namespaced: namespaced, Watched: true,
	}
}

var (
	configMaps   = resource("", "v1", "configmaps", "ConfigMap", true)
	pods         = resource("", "v1", "pods", "Pod", true)
	jobs         = resource("batch", "v1", "jobs", "Job", true)
	spaces       = resource("", "v1", "namespaces", "Namespace", false)
	crds         = resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false)
	widgets      = resource("example.com", "v1", "widgets", "Widget", true)
	volumeClaims = resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true)

	clusters         = resource(clusterapi.Core, "v1beta2", "clusters", "Cluster", true)
	classes          = resource(clusterapi.Core, "v1beta2", "clusterclasses", "ClusterClass", true)
	deployments      = resource(clusterapi.Core, "v1beta2", "machinedeployments", "MachineDeployment", true)
	infraClusters    = resource(clusterapi.Infrastructure, "v1beta2", "devclusters", "DevCluster", true)
	machineTemplates = resource(clusterapi.Infrastructure, "v1beta2", "devmachinetemplates", "DevMachineTemplate", true)
	resourceSets     = resource(clusterapi.Addons, "v1beta2", "clusterresourcesets", "ClusterResourceSet", true)
	bindings         = resource(clusterapi.Addons, "v1beta2", "clusterresourcesetbindings", "ClusterResourceSetBinding", true)

	servedKinds = []graph.Resource{
		configMaps, pods, jobs, spaces, crds, widgets, volumeClaims, persistentVolumes,
		clusters, classes, deployments, infraClusters, machineTemplates, resourceSets, bindings,
	}
)

func (w *world) preview(spec ownership.DeletionPreviewSpec) (ownership.DeletionPreviewStatus, error) {
	w.t.Helper()
	review := &ownership.DeletionPreview{Spec: spec}
	err := w.create(w.reviews().DeletionPreviews(w.policy()), review)
	return review.Status, err
}

// outcomes returns the objects of a preview, one on a line: name, outcome, and what blocks or keeps
// it.
func outcomes(s ownership.DeletionPreviewStatus) []string {
	var lines []string
	for _, o := range s.Objects {
		line := o.Name + " " + string(o.Outcome)
		if o.Target {
			line += " target"
		}
		for _, b := range o.BlockedBy {
			line += " blocked by " + blockText(b)
		}
		for _, k := range o.KeptBy {
			line += fmt.Sprintf(" kept by %s %s", k.Name, k.Standing)
		}
		lines = append(lines, line)
	}
	return lines
}

func blockText(b ownership.DeletionBlock) string {
	for _, ref := range []*ownership.ObjectReference{b.Dependent, b.Owner, b.Content} {
		if ref != nil {
			return ref.Name
		}
	}
	if b.Hidden {
		return "something hidden"
	}
	return b.Finalizer
}

func target(r graph.Resource, namespace, name string) ownership.DeletionTarget {
	return ownership.DeletionTarget{APIVersion: r.GroupVersion().String(), Kind: r.Kind, Namespace: namespace, Name: name}
}

func TestPreview(t *testing.T) {
	foreground, orphan := metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	for _, tt := range []struct {
		name   string
		fill   func(*world)
		target ownership.DeletionTarget
		policy *metav1.DeletionPropagation
		want   []string
	}{
		{
			"a chain", func(w *world) {
				w.add(configMaps, "a", "root", nil)
				w.add(configMaps, "a", "middle", ownedBy(configMaps, "root"))
				w.add(pods, "a", "leaf", ownedBy(configMaps, "middle"))
				w.add(pods, "a", "stranger", nil)
			}, target(configMaps, "a", "root"), nil,
			[]string{"root Deleted target", "middle Deleted", "leaf Deleted"},
		},
		{
			"another owner keeps", func(w *world) {
				w.add(configMaps, "a", "one", nil)
				w.add(configMaps, "a", "two", nil)
				w.add(pods, "a", "shared", ownedBy(configMaps, "one", "two"))
			}, target(configMaps, "a", "one"), nil,
			[]string{"one Deleted target", "shared Kept kept by two Solid"},
		},
		{
			"orphaned", func(w *world) {
				w.add(configMaps, "a", "root", nil)
				w.add(pods, "a", "child", ownedBy(configMaps, "root"))
				w.add(pods, "a", "grandchild", ownedBy(pods, "child"))
			}, target(configMaps, "a", "root"), &orphan,
			[]string{"root Deleted target", "child Orphaned"},
		},
		{
			"a kind that orphans by default", func(w *world) {
				w.add(jobs, "a", "job", nil)
				w.add(pods, "a", "child", ownedBy(jobs, "job"))
			}, target(jobs, "a", "job"), nil,
			[]string{"job Deleted target", "child Orphaned"},
		},
		{
			"a finalizer below, in the foreground", func(w *world) {
				w.add(configMaps, "a", "root", nil)
				w.add(pods, "a", "child", held(ownedBy(configMaps, "root"), "example.com/hold"))
			}, target(configMaps, "a", "root"), &foreground,
			[]string{"root Deleted target blocked by child", "child Deleted blocked by example.com/hold"},
		},
		{
			"a finalizer above, in the background", func(w *world) {
				w.add(configMaps, "a", "root", held(nil, "example.com/hold"))
				w.add(pods, "a", "child", ownedBy(configMaps, "root"))
			}, target(configMaps, "a", "root"), nil,
			[]string{"root Deleted target blocked by example.com/hold", "child Deleted blocked by root"},
		},
		{
			"finalizers above and below, in the background", func(w *world) {
				w.add(configMaps, "a", "root", held(nil, "example.com/one"))
				w.add(configMaps, "a", "child", held(ownedBy(configMaps, "root"), "example.com/two"))
				w.add(pods, "a", "free", ownedBy(configMaps, "root"))
				w.add(pods, "a", "grandchild", held(ownedBy(configMaps, "child"), "example.com/three"))
			}, target(configMaps, "a", "root"), nil,
			[]string{
				"root Deleted target blocked by example.com/one", "child Deleted blocked by root blocked by example.com/two",
				"free Deleted blocked by root", "grandchild Deleted blocked by child blocked by example.com/three",
			},
		},
		{
			"siblings by kind and name, whatever their age", func(w *world) {
				w.add(configMaps, "a", "root", nil)
				w.add(pods, "a", "z", ownedBy(configMaps, "root"))
				w.add(widgets, "a", "a", ownedBy(configMaps, "root"))
				w.add(pods, "a", "b", ownedBy(configMaps, "root"))
				w.add(configMaps, "a", "c", ownedBy(pods, "z"))
				w.add(configMaps, "a", "d", ownedBy(configMaps, "root"))
			}, target(configMaps, "a", "root"), nil,
			[]string{"root Deleted target", "d Deleted", "b Deleted", "z Deleted", "a Deleted", "c Deleted"},
		},
		{
			"a cycle", func(w *world) {
				w.add(configMaps, "a", "one", ownedBy(configMaps, "two"))
				w.add(configMaps, "a", "two", ownedBy(configMaps, "one"))
			}, target(configMaps, "a", "two"), nil,
			[]string{"two Deleted target", "one Deleted"},
		},
		{
			"a dependent that stays blocks forever", func(w *world) {
				w.add(configMaps, "a", "root", nil)
				w.add(pods, "a", "child", func(o *unstructured.Unstructured) {
					ownedBy(configMaps, "root")(o)
					refs := append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "gone.example.com/v1", Kind: "Gone", Name: "x", UID: "x"})
					o.SetOwnerReferences(refs)
				})
			}, target(configMaps, "a", "root"), &foreground,
			[]string{"root Blocked target blocked by child", "child Kept kept by root Waiting kept by x Unresolved"},
		},
		{
			"a namespace", func(w *world) {
				w.add(spaces, "", "a", nil)
				w.add(configMaps, "a", "root", nil)
				w.add(pods, "a", "child", ownedBy(configMaps, "root"))
				w.add(pods, "a", "stuck", held(nil, "example.com/hold"))
				w.add(pods, "b", "elsewhere", nil)
			}, target(spaces, "", "a"), nil,
			[]string{"a Deleted target blocked by stuck", "root Deleted", "child Deleted", "stuck Deleted blocked by example.com/hold"},
		},
		{
			"a definition", func(w *world) {
				w.add(crds, "", "widgets.example.com", held(nil, cleanup))
				w.add(widgets, "a", "one", nil)
				w.add(widgets, "b", "two", nil)
				w.add(pods, "b", "child", ownedBy(widgets, "two"))
			}, target(crds, "", "widgets.example.com"), nil,
			[]string{"widgets.example.com Deleted target", "one Deleted", "two Deleted", "child Deleted"},
		},
		{
			"a selector", func(w *world) {
				labelled := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"app": "x"}) }
				w.add(pods, "a", "one", labelled)
				w.add(pods, "b", "two", labelled)
				w.add(pods, "a", "other", nil)
			}, ownership.DeletionTarget{APIVersion: "v1", Kind: "Pod", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}, nil,
			[]string{"one Deleted target", "two Deleted target"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.fill(w)
			s, err := w.preview(ownership.DeletionPreviewSpec{Target: &tt.target, PropagationPolicy: tt.policy})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, outcomes(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPreviewWarnsOfControllers(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, "a", "set", nil)
	w.add(pods, "a", "child", ownedBy(configMaps, "set"))
	s, err := w.preview(ownership.DeletionPreviewSpec{Target: new(target(pods, "a", "child"))})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "controlled by ConfigMap set") {
		t.Errorf("warnings %q", s.Warnings)
	}
}

// TestPreviewRefusals checks that invalid specs get the errors that the API returns for bad
// requests.
func TestPreviewRefusals(t *testing.T) {
	policy := metav1.DeletionPropagation("Sideways")
	for _, tt := range []struct {
		name string
		spec ownership.DeletionPreviewSpec
		want string
		is   func(error) bool
	}{
		{"no kind", ownership.DeletionPreviewSpec{Target: &ownership.DeletionTarget{Name: "x"}}, "spec.target.kind: Required", apierrors.IsInvalid},
		{"no name", ownership.DeletionPreviewSpec{Target: new(target(pods, "a", ""))}, "either name or selector", apierrors.IsInvalid},
		{"name and selector", ownership.DeletionPreviewSpec{Target: &ownership.DeletionTarget{APIVersion: "v1", Kind: "Pod", Name: "x", Selector: &metav1.LabelSelector{}}}, "spec.target.selector: Forbidden", apierrors.IsInvalid},
		{"bad selector", ownership.DeletionPreviewSpec{Target: &ownership.DeletionTarget{APIVersion: "v1", Kind: "Pod", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}}}, "spec.target.selector", apierrors.IsInvalid},
		{"bad policy", ownership.DeletionPreviewSpec{Target: new(target(pods, "a", "x")), PropagationPolicy: &policy}, "spec.propagationPolicy", apierrors.IsInvalid},
		{"bad version", ownership.DeletionPreviewSpec{Target: &ownership.DeletionTarget{APIVersion: "a/b/c", Kind: "Pod", Name: "x"}}, "spec.target.apiVersion", apierrors.IsInvalid},
		{"no such kind", ownership.DeletionPreviewSpec{Target: &ownership.DeletionTarget{APIVersion: "v1", Kind: "Unicorn", Name: "x"}}, "kind Unicorn in group", apierrors.IsBadRequest},
		{"no namespace", ownership.DeletionPreviewSpec{Target: new(target(pods, "", "x"))}, "no namespace is given", apierrors.IsBadRequest},
		{"namespace for a cluster-scoped kind", ownership.DeletionPreviewSpec{Target: new(target(spaces, "a", "x"))}, "is cluster-scoped", apierrors.IsBadRequest},
		{"no such object", ownership.DeletionPreviewSpec{Target: new(target(pods, "a", "x"))}, `pods "x" not found`, apierrors.IsNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newWorld(t).preview(tt.spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !tt.is(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestBeforeTheCollectorRuns(t *testing.T) {
	w := newWorld(t)
	for _, reviews := range []*Reviews{nil, {}} {
		err := w.create(reviews.DeletionPreviews(w.policy()), &ownership.DeletionPreview{Spec: ownership.DeletionPreviewSpec{Target: new(target(pods, "a", "x"))}})
		if !apierrors.IsServiceUnavailable(err) {
			t.Errorf("error %v", err)
		}
	}
}

// TestHidden checks that nothing about objects that the caller may not read is shown, not even
// their names.
func TestHidden(t *testing.T) {
	w := newWorld(t)
	foreground := metav1.DeletePropagationForeground
	w.add(configMaps, "a", "root", nil)
	w.add(pods, "a", "secret-child", held(ownedBy(configMaps, "root"), "example.com/hold"))
	w.add(widgets, "a", "open-child", ownedBy(configMaps, "root", "secret-owner"))
	w.add(configMaps, "a", "secret-owner", nil)
	w.allowed = func(a authorizer.Attributes) bool {
		return a.GetResource() != "pods" && a.GetName() != "" && a.GetName() != "secret-owner"
	}
	s, err := w.preview(ownership.DeletionPreviewSpec{Target: new(target(configMaps, "a", "root")), PropagationPolicy: &foreground})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"root Deleted target blocked by something hidden", "open-child Kept kept by secret-owner Hidden"}
	if diff := cmp.Diff(want, outcomes(s)); diff != "" || s.Hidden != 1 || s.Deleted != 1 {
		t.Errorf("hidden %d, deleted %d: %s", s.Hidden, s.Deleted, diff)
	}
	w.allowed = func(authorizer.Attributes) bool { return false }
	for name, missing := range map[string]string{"there": "root", "not there": "nothing"} {
		_, err := w.preview(ownership.DeletionPreviewSpec{Target: new(target(configMaps, "a", missing))})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot get resource "configmaps"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHiddenOwnerOfAKindThatIsNotWatched: the collector looks up an owner of a kind that it does
// not watch. The result is shown only to callers who may get the owner.
func TestHiddenOwnerOfAKindThatIsNotWatched(t *testing.T) {
	events := resource("", "v1", "events", "Event", true)
	events.Watched = false
	unserved := resource("gone.example.com", "v1", "things", "Thing", true)
	for name, tt := range map[string]struct {
		owner graph.Resource
		may   bool
		want  ownership.Standing
	}{
		"readable":   {events, true, ownership.StandingPending},
		"unreadable": {events, false, ownership.StandingHidden},
		"unserved":   {unserved, false, ownership.StandingUnresolved},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.graph.Serve(events)
			w.add(configMaps, "a", "dependent", ownedBy(tt.owner, "owner"))
			w.allowed = func(a authorizer.Attributes) bool { return tt.may || a.GetResource() == "configmaps" }
			s, err := w.tree(ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "dependent"}})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Objects[0].Owners[0].Standing; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
