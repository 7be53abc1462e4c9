// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func TestPlanOf(t *testing.T) {
	with := func(o *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		change(o)
		return o
	}
	finalized := func(finalizer string) *unstructured.Unstructured {
		return with(object("v1", "ConfigMap", "a"), func(o *unstructured.Unstructured) { o.SetFinalizers([]string{finalizer}) })
	}
	for _, tt := range []struct {
		name    string
		object  *unstructured.Unstructured
		consent Consent
		problem string // a substring; "" for no problem
		note    string
	}{
		{"nothing", object("v1", "ConfigMap", "a"), Consent{}, "", ""},
		{"owner outside", object("v1", "ConfigMap", "a", "x"), Consent{}, "is also owned by any/x", ""},
		{"owner outside, consented", object("v1", "ConfigMap", "a", "x"), Consent{DropOutsideOwners: true}, "", "loses its owner any/x"},
		{"finalizer", finalized("e.com/f"), Consent{}, "has the finalizer e.com/f", ""},
		{"finalizer, consented", finalized("e.com/f"), Consent{DropFinalizers: true}, "", "loses its finalizers at the source"},
		{"finalizer, nothing removed", finalized("e.com/f"), Consent{KeepSource: true}, "", ""},
		{"finalizer of Kubernetes", finalized("kubernetes.io/pvc-protection"), Consent{}, "", ""},
		{"finalizer of Kubernetes without a slash", finalized("foregroundDeletion"), Consent{}, "", ""},
		{"finalizer without a slash", finalized("cluster.cluster.x-k8s.io"), Consent{}, "has the finalizer cluster.cluster.x-k8s.io", ""},
		{"finalizer without a domain", finalized("mine"), Consent{}, "has the finalizer mine", ""},
		{"finalizer in a domain of Kubernetes", finalized("kubernetes.io/mine"), Consent{}, "has the finalizer kubernetes.io/mine", ""},
		{"finalizer without a slash, consented", finalized("machine.cluster.x-k8s.io"), Consent{DropFinalizers: true}, "", "loses its finalizers at the source before it is removed: machine.cluster.x-k8s.io"},
		{"being deleted", with(object("v1", "ConfigMap", "a"), func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		}), Consent{}, "is being deleted", ""},
		{"CRD", object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "a"), Consent{}, "would delete every object of its kind", ""},
		{"namespace", object("v1", "Namespace", "a"), Consent{}, "owns nothing", ""},
		{"no hold", object("e.com/v1", "K", "a"), Consent{}, "", "k.e.com cannot be paused"},
		{"held", provisioned(object("cluster.x-k8s.io/v1", "Cluster", "a")), Consent{}, "", ""},
		{"data stays", with(object("v1", "PersistentVolumeClaim", "a"), func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "v", "spec", "volumeName")
		}), Consent{}, "", "the data of persistentvolumeclaim/a in namespace ns does not move"},
		{"part of another move", with(object("v1", "ConfigMap", "a"), func(o *unstructured.Unstructured) {
			own := mark{Move: "other", For: "configmap/a", from: "u"}
			o.SetAnnotations(map[string]string{own.key(): own.text()})
		}), Consent{}, "came with another move, other", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := planOf(Assemble([]*unstructured.Unstructured{tt.object}, map[types.UID]bool{"a": true}), tt.consent)
			for _, c := range []struct {
				what string
				got  []string
				want string
			}{{"problems", p.Problems, tt.problem}, {"notes", p.Notes, tt.note}} {
				all := strings.Join(c.got, "\n")
				if c.want == "" && all != "" || !strings.Contains(all, c.want) {
					t.Errorf("%s are %q, want %q", c.what, all, c.want)
				}
			}
		})
	}
}

// provisioned returns a Cluster whose provisioning is complete.
func provisioned(cluster *unstructured.Unstructured) *unstructured.Unstructured {
	cluster.Object["status"] = map[string]any{
		"initialization": map[string]any{"infrastructureProvisioned": true},
		"conditions":     []any{map[string]any{"type": "ControlPlaneInitialized", "status": "True"}},
	}
	return cluster
}

// TestVerbsAtSource: a move needs no permission that it does not use.
func TestVerbsAtSource(t *testing.T) {
	finalized := object("v1", "ConfigMap", "f")
	finalized.SetFinalizers([]string{"e.com"})
	protected := object("v1", "ConfigMap", "k")
	protected.SetFinalizers([]string{"kubernetes.io/pvc-protection"})
	g := Assemble([]*unstructured.Unstructured{
		object("apps/v1", "ReplicaSet", "rs"), object("v1", "Pod", "of-rs", "rs"),
		object("apps/v1", "StatefulSet", "sts"), object("v1", "Pod", "of-sts", "sts"), object("apps/v1", "ControllerRevision", "rev", "sts"),
		finalized, protected,
	}, nil)
	want := map[types.UID]string{"rs": "delete", "of-rs": "", "sts": "delete", "of-sts": "delete patch", "rev": "delete", "f": "delete patch", "k": "delete"}
	for _, item := range g.Items {
		if got := strings.Join(verbsAtSource(item, g.dependents()), " "); got != want[item.UID()] {
			t.Errorf("%s: %q, want %q", item, got, want[item.UID()])
		}
	}
}

// written returns a directory with a graph of two objects, and the graph.
func written(t *testing.T) (string, *Graph) {
	t.Helper()
	g := Assemble([]*unstructured.Unstructured{object("v1", "ConfigMap", "a"), object("v1", "Secret", "b", "a")}, map[types.UID]bool{"a": true})
	_ = unstructured.SetNestedField(g.Items[0].Object.Object, int64(7), "spec", "whole")
	m := &Mover{Options: Options{ToDirectory: filepath.Join(t.TempDir(), "graph"), Progress: func(string) {}}, graph: g, plan: &Plan{ID: g.ID()}}
	// The directory may exist if it is empty; files of an interrupted run are replaced.
	if err := os.Mkdir(m.ToDirectory, 0o700); err != nil {
		t.Fatal(err)
	}
	partial := m.ToDirectory + ".partial-" + m.plan.ID
	if err := os.MkdirAll(filepath.Join(partial, "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.writeDirectory(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(partial); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", partial, err)
	}
	return m.ToDirectory, g
}

func TestDirectory(t *testing.T) {
	path, g := written(t)
	got, err := readDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.graph.ID() != g.ID() || len(got.graph.Items) != len(g.Items) {
		t.Errorf("another graph: %d items, ID %s", len(got.graph.Items), got.graph.ID())
	}
	for i, item := range g.Items {
		if diff := cmp.Diff(item.Object.Object, got.graph.Items[i].Object.Object); diff != "" {
			t.Error(diff)
		}
	}
	if err := checkEmptyDirectory(path); err == nil {
		t.Error("an existing directory would be overwritten")
	}
}

// TestBrokenDirectory: an incomplete or damaged directory is refused.
func TestBrokenDirectory(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(path string) error
		want string
	}{
		{"no index", func(path string) error { return os.Remove(filepath.Join(path, indexFile)) }, "or is incomplete"},
		{"a file is missing", func(path string) error { return os.Remove(filepath.Join(path, "0001-ConfigMap-a.yaml")) }, "is incomplete"},
		{"a file is truncated", func(path string) error { return os.Truncate(filepath.Join(path, "0002-Secret-b.yaml"), 20) }, "is not what was written"},
		{"the index is truncated", func(path string) error { return os.Truncate(filepath.Join(path, indexFile), 30) }, indexFile},
		{"the index is empty", func(path string) error { return os.Truncate(filepath.Join(path, indexFile), 0) }, "is not the index"},
		{"outside", func(path string) error {
			text, err := os.ReadFile(filepath.Join(path, indexFile))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(path, indexFile), []byte(strings.Replace(string(text), "0001-", "../../0001-", 1)), 0o600)
		}, "outside of the directory"},
		{"roots that are not in the directory", func(path string) error {
			text, err := os.ReadFile(filepath.Join(path, indexFile))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(path, indexFile), []byte(strings.Replace(string(text), "roots:\n- a", "roots:\n- x", 1)), 0o600)
		}, "its roots are not among its objects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, _ := written(t)
			if err := tt.do(path); err != nil {
				t.Fatal(err)
			}
			if _, err := readDirectory(path); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
