// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

const (
	coreVersion  = "cluster.x-k8s.io/v1beta2"
	infraVersion = "infrastructure.cluster.x-k8s.io/v1beta2"
)

func capi(kind, name string, owners ...string) *unstructured.Unstructured {
	return object(coreVersion, kind, name, owners...)
}

// with returns an object with a field set.
func with(o *unstructured.Unstructured, value any, fields ...string) *unstructured.Unstructured {
	_ = unstructured.SetNestedField(o.Object, value, fields...)
	return o
}

func rootsOfTest(names ...string) map[types.UID]bool {
	roots := map[types.UID]bool{}
	for _, name := range names {
		roots[types.UID(name)] = true
	}
	return roots
}

// paused returns an object as the source has it after a move has paused it.
func paused(t *testing.T, o *unstructured.Unstructured, move string) *unstructured.Unstructured {
	t.Helper()
	return merge(t, o, pauseOf(&Item{Object: o, Root: true}, move))
}

// merge applies a merge patch as an API server does.
func merge(t *testing.T, o *unstructured.Unstructured, changes map[string]any) *unstructured.Unstructured {
	t.Helper()
	document, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := jsonpatch.MergePatch(document, patch)
	if err != nil {
		t.Fatal(err)
	}
	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(merged); err != nil {
		t.Fatal(err)
	}
	return result
}

func TestPlanOfClusterAPI(t *testing.T) {
	ready := func() *unstructured.Unstructured { return provisioned(capi("Cluster", "c")) }
	classy := func() *unstructured.Unstructured {
		return with(ready(), map[string]any{"classRef": map[string]any{"name": "class"}}, "spec", "topology")
	}
	move := ID([]types.UID{"c"})
	for name, test := range map[string]struct {
		objects []*unstructured.Unstructured
		problem string // a part of the only problem; "" if there is none
	}{
		"provisioned":             {objects: []*unstructured.Unstructured{ready()}},
		"provisioned, of v1beta1": {objects: []*unstructured.Unstructured{with(with(ready(), map[string]any{}, "status", "initialization"), true, "status", "infrastructureReady")}},
		"no infrastructure":       {[]*unstructured.Unstructured{with(ready(), false, "status", "initialization", "infrastructureProvisioned")}, "it has no infrastructure"},
		"no control plane":        {[]*unstructured.Unstructured{with(ready(), []any{}, "status", "conditions")}, "its control plane is not initialized"},
		"a machine with a node": {objects: []*unstructured.Unstructured{
			ready(), with(capi("Machine", "m", "c"), map[string]any{"name": "n"}, "status", "nodeRef"),
		}},
		"a machine without a node": {[]*unstructured.Unstructured{ready(), capi("Machine", "m", "c")}, "machine.cluster.x-k8s.io/m in namespace ns has no node yet"},
		"paused by hand":           {[]*unstructured.Unstructured{with(ready(), true, "spec", "paused")}, "is paused; resume it first"},
		"annotated by hand": {[]*unstructured.Unstructured{with(ready(), map[string]any{"cluster.x-k8s.io/paused": ""}, "metadata", "annotations")},
			"is paused; resume it first"},
		"paused by this move":          {objects: []*unstructured.Unstructured{paused(t, ready(), move)}},
		"paused by another move":       {[]*unstructured.Unstructured{paused(t, ready(), "other")}, "was paused by another move, other, which is not finished"},
		"a class that stays":           {[]*unstructured.Unstructured{classy()}, "is made from clusterclass.cluster.x-k8s.io/class in namespace ns, which does not move"},
		"a class that moves":           {objects: []*unstructured.Unstructured{classy(), capi("ClusterClass", "class")}},
		"a class that stays, v1beta1":  {[]*unstructured.Unstructured{with(ready(), "class", "spec", "topology", "class")}, "is made from clusterclass.cluster.x-k8s.io/class in namespace ns"},
		"finalizers, which go at rest": {objects: []*unstructured.Unstructured{with(ready(), []any{"cluster.cluster.x-k8s.io"}, "metadata", "finalizers")}},
		"finalizers of a machine without its Cluster": {[]*unstructured.Unstructured{
			ready(), object("v1", "ConfigMap", "o"), with(with(capi("Machine", "m", "o"), []any{"machine.cluster.x-k8s.io"}, "metadata", "finalizers"), map[string]any{"name": "n"}, "status", "nodeRef"),
		}, "machine.cluster.x-k8s.io/m in namespace ns has the finalizer"},
	} {
		t.Run(name, func(t *testing.T) {
			p := planOf(Assemble(test.objects, rootsOfTest("c")), Consent{})
			if test.problem == "" && len(p.Problems) > 0 || test.problem != "" && (len(p.Problems) != 1 || !strings.Contains(p.Problems[0], test.problem)) {
				t.Errorf("problems are %q, want %q", p.Problems, test.problem)
			}
		})
	}
}

// TestClassesComeFirst: a ClusterClass is copied before the Clusters that are made from it, whatever their names, and removed after them.
func TestClassesComeFirst(t *testing.T) {
	class := capi("ClusterClass", "z")
	cluster := with(capi("Cluster", "a"), map[string]any{"classRef": map[string]any{"name": "z", "namespace": "ns"}}, "spec", "topology")
	g := Assemble([]*unstructured.Unstructured{cluster, class, object(infraVersion, "DevCluster", "i", "a")}, rootsOfTest("a", "z"))
	names := func(items []*Item) (names []string) {
		for _, item := range items {
			names = append(names, item.Object.GetName())
		}
		return names
	}
	if diff := cmp.Diff([]string{"z", "a", "i"}, names(g.Items)); diff != "" {
		t.Errorf("copied (-want +got):\n%s", diff)
	}
	slices.SortStableFunc(g.Items, kindLast(clusterapi.ClusterClass))
	if diff := cmp.Diff([]string{"a", "i", "z"}, names(g.Items)); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "z"}, names(g.pausable())); diff != "" {
		t.Errorf("paused (-want +got):\n%s", diff)
	}
}

// TestPauseIsUndone: the pause changes neither the copy nor its digest, and the patch that resumes the source restores it.
func TestPauseIsUndone(t *testing.T) {
	nothing := func(_ schema.GroupKind, _, _ string) bool { return false }
	for _, o := range []*unstructured.Unstructured{
		provisioned(with(capi("Cluster", "a"), "1.2.3.4", "spec", "controlPlaneEndpoint", "host")),
		with(capi("ClusterClass", "a"), map[string]any{"mine": "kept"}, "metadata", "annotations"),
		capi("MachineDeployment", "a"),
	} {
		now := paused(t, o, "move")
		if !clusterapi.IsPaused(now) || pausedBy(now) != "move" || clusterapi.IsPaused(o) {
			t.Errorf("%s is not paused: %v", o.GetKind(), now.Object)
		}
		if diff := cmp.Diff(Clean(o, nothing).Object, Clean(now, nothing).Object); diff != "" {
			t.Errorf("%s: the copy (-before +paused):\n%s", o.GetKind(), diff)
		}
		if digest(o, nothing) != digest(now, nothing) {
			t.Errorf("%s: the digest changes", o.GetKind())
		}
		resumed := merge(t, now, pauseOf(&Item{Object: now, Root: true}, ""))
		if clusterapi.IsPaused(resumed) || pausedBy(resumed) != "" {
			t.Errorf("%s is still paused: %v", o.GetKind(), resumed.Object)
		}
	}
}

func TestActive(t *testing.T) {
	condition := func(o *unstructured.Unstructured, status string) *unstructured.Unstructured {
		return with(o, []any{map[string]any{"type": "Paused", "status": status}}, "status", "conditions")
	}
	for name, test := range map[string]struct {
		objects []*unstructured.Unstructured
		want    string // a part; "" if all rest
	}{
		"all rest":               {objects: []*unstructured.Unstructured{condition(capi("Cluster", "c"), "True"), condition(capi("Machine", "m", "c"), "True")}},
		"without a condition":    {objects: []*unstructured.Unstructured{condition(capi("Cluster", "c"), "True"), object(infraVersion, "OldMachine", "m", "c")}},
		"not yet":                {[]*unstructured.Unstructured{condition(capi("Cluster", "c"), "True"), condition(capi("Machine", "m", "c"), "False")}, "the controller of machine.cluster.x-k8s.io/m in namespace ns has not paused"},
		"blocked":                {[]*unstructured.Unstructured{condition(with(capi("Cluster", "c"), map[string]any{blockMove: ""}, "metadata", "annotations"), "True")}, "cluster.cluster.x-k8s.io/c in namespace ns has the annotation " + blockMove},
		"not of the Cluster":     {objects: []*unstructured.Unstructured{condition(capi("Cluster", "c"), "True"), object("v1", "ConfigMap", "o"), condition(capi("Machine", "m", "o"), "False")}},
		"not of Cluster API":     {objects: []*unstructured.Unstructured{condition(object("e.com/v1", "K", "c"), "False")}},
		"a root without Cluster": {[]*unstructured.Unstructured{condition(capi("MachineDeployment", "c"), "False")}, "has not paused"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Assemble(test.objects, rootsOfTest("c")).active()
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
