// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// floors says who may use whom: for each part of the house, the other parts that it may
// import. A part is a directory with all below it; "." is the root package. A part may
// always use itself and apis, and everything outside of this repository but
// k8s.io/kubernetes.
var floors = map[string][]string{
	"cmd": {"internal/cli"},
	// Verbs about a cluster that need not run (reset) and about its images know its
	// directory and its container runtime, which are below the cluster. A move is a client of
	// two clusters, and needs none of its own.
	"internal/cli":     {".", "internal/cluster", "internal/containerd", "internal/datadir", "internal/ownership/move", "internal/storage"},
	".":                {"internal/auth", "internal/cluster", "internal/datadir", "internal/storage"},
	"internal/cluster": {"internal/apiserver", "internal/auth", "internal/containerd", "internal/controllers", "internal/datadir", "internal/deletion", "internal/mounts", "internal/network", "internal/node", "internal/ownership", "internal/scheduler", "internal/storage"},

	"internal/apiserver": {"internal/registry", "internal/auth", "internal/admission", "internal/deletion", "internal/storage", "internal/ownership"},
	"internal/registry":  {"internal/auth"},
	"internal/admission": {"internal/auth", "internal/quota"},

	// These know the API alone, never each other.
	"internal/controllers": {"internal/quota", "internal/roles"},
	"internal/scheduler":   {},
	"internal/node":        {"internal/durable", "internal/mounts"},
	"internal/network":     {},
	"internal/containerd":  {"internal/durable", "internal/mounts"}, // the node that runs on it knows only its CRI socket
	"internal/ownership":   {"internal/deletion", "internal/durable"},

	// These know nobody.
	"internal/auth":     {"internal/durable", "internal/roles"},
	"internal/datadir":  {"internal/durable", "internal/mounts"},
	"internal/storage":  {"internal/deletion", "internal/durable"},
	"internal/durable":  {}, // how files survive power loss: six parts write such files (rule 9)
	"internal/deletion": {}, // what is remembered of a deletion: the store writes it with the deletion, ownership tells it (rule 9)
	"internal/mounts":   {}, // a rule of Linux, needed by whoever removes directories (rule 9)
	"internal/quota":    {}, // what quotas count: admission charges it, a controller keeps it true (rule 9)
	"internal/roles":    {}, // what a role gathers: the first policy is written by it, a controller keeps it true (rule 9)
	"apis":              {},

	// Modules and programs beside the product use it from outside: through its binary.
	"kindredtest":  {},
	"console":      {},
	"test/images":  {},
	"test/crash":   {},
	"test/house":   {},
	"test/kept":    {},
	"test/servers": {"test/kept"},
	"test/attack":  {"apis", "test/servers"},
	"test/bench":   {"test/images", "test/servers"},
	"test/parity":  {"test/servers"},
	"test/clients": {"kindredtest"},
	// The suite is upstream's; what runs it and its images are ours.
	"test/conformance": {"test/images", "test/kept", "test/servers", "internal/containerd/pause"},
	"test/scenarios":   {"test/images", "test/servers"},
}

// testFloors lists what the tests of a part may import besides: the node's run on a real runtime.
var testFloors = map[string][]string{
	"internal/node": {"internal/containerd"},
}

// partOf is the part that a directory belongs to: the longest that matches.
func partOf(dir string) (string, bool) {
	if dir == "." {
		return ".", true
	}
	for part := dir; part != "."; part = parent(part) {
		if _, found := floors[part]; found {
			return part, true
		}
	}
	return "", false
}

func parent(dir string) string {
	if i := strings.LastIndex(dir, "/"); i >= 0 {
		return dir[:i]
	}
	return "."
}

// within reports whether a directory belongs to a part or to a smaller piece of it, such as
// internal/containerd/pause.
func within(dir, part string) bool {
	return dir == part || part != "." && strings.HasPrefix(dir, part+"/")
}

func TestWhoMayUseWhom(t *testing.T) {
	for _, f := range source(t) {
		part, found := partOf(f.dir())
		if !found {
			t.Errorf("%s belongs to no part of the house: give its directory a line in floors", f.path)
			continue
		}
		for _, imported := range f.imports() {
			if !mayUse(part, imported, f.isTest()) {
				t.Errorf("%s imports %s: %s may use %v only", f.path, imported, part, floors[part])
			}
		}
	}
}

func mayUse(part, imported string, inTest bool) bool {
	if imported == "k8s.io/kubernetes" || strings.HasPrefix(imported, "k8s.io/kubernetes/") {
		return false
	}
	if imported != module && !strings.HasPrefix(imported, module+"/") {
		return true
	}
	dir := "."
	if imported != module {
		dir = strings.TrimPrefix(imported, module+"/")
	}
	if within(dir, part) || within(dir, "apis") && part != "kindredtest" {
		return true
	}
	if inTest && dir == "test/images" {
		return true
	}
	allowed := floors[part]
	if inTest {
		allowed = slices.Concat(allowed, testFloors[part])
	}
	return slices.ContainsFunc(allowed, func(room string) bool { return within(dir, room) })
}

// TestMayUse holds the judge itself, which would otherwise be free to allow everything.
func TestMayUse(t *testing.T) {
	for _, tt := range []struct {
		part, imported string
		inTest, want   bool
	}{
		{"cmd", module + "/internal/cli", false, true},
		{"cmd", module, false, false},
		{"internal/cli", module, false, true},
		{"internal/cli", module + "/internal/node", false, false},
		{"internal/cluster", module, false, false},
		{"internal/cluster", module + "/internal/node/simulated", false, true},
		{"internal/controllers", module + "/internal/controllers/owned", false, true},
		{"internal/controllers", module + "/internal/ownership/graph", false, false},
		{"internal/controllers", module + "/internal/storage", false, false},
		{"internal/controllers", module + "/internal/quota", false, true},
		{"internal/controllers", module + "/internal/roles", false, true},
		{"internal/auth", module + "/internal/roles", false, true},
		{"internal/roles", module + "/internal/auth/rbac", false, false},
		{"internal/controllers", module + "/internal/admission/resourcequota", false, false},
		{"internal/node", module + "/internal/network", false, false},
		{"internal/registry", module + "/internal/apiserver", false, false},
		{"internal/storage", module + "/internal/datadir", false, false},
		{"internal/node", module + "/internal/containerd", false, false},
		{"internal/node", module + "/internal/containerd", true, true},
		{"internal/node", module + "/test/images", true, true},
		{"internal/node", module + "/test/images", false, false},
		{"internal/node", module + "/apis/ownership/v1alpha1", false, true},
		{"kindredtest", module + "/apis/ownership/v1alpha1", false, false},
		{"test/scenarios", "k8s.io/kubernetes/pkg/apis/core", true, false},
		{"internal/node", "k8s.io/kubernetes-like/x", false, true},
		{".", module + "/internal/apiserver", false, false},
	} {
		if got := mayUse(tt.part, tt.imported, tt.inTest); got != tt.want {
			t.Errorf("%s may use %s (test: %v): %v, want %v", tt.part, tt.imported, tt.inTest, got, tt.want)
		}
	}
}

// TestModules: k8s.io/kubernetes is no library, not even by way of another module, and all
// of Kubernetes' libraries are of one version.
func TestModules(t *testing.T) {
	const version = "v0.37.1"
	published := []string{"api", "apiextensions-apiserver", "apimachinery", "apiserver", "client-go", "component-base", "kube-aggregator", "kubectl"}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(sums), "k8s.io/kubernetes ") {
		t.Error("go.sum has k8s.io/kubernetes")
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range published {
		if want := "k8s.io/" + name + " " + version; !strings.Contains(string(mod), want) {
			t.Errorf("go.mod has no %q", want)
		}
	}
}
