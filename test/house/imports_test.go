// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// partOf returns the part that a directory belongs to: the longest that matches.
func (r rules) partOf(dir string) (string, bool) {
	if dir == "." {
		return ".", true
	}
	for part := dir; part != "."; part = parent(part) {
		if _, found := r.allowed[part]; found {
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

// within reports whether a directory is a part's directory or below it.
func within(dir, part string) bool {
	return dir == part || part != "." && strings.HasPrefix(dir, part+"/")
}

func TestImports(t *testing.T) {
	r := readRules(t)
	for _, f := range source(t) {
		part, found := r.partOf(f.dir())
		if !found {
			t.Errorf("%s belongs to no part: add a row for its directory to the import rules of %s", f.path, architecture)
			continue
		}
		for _, imported := range f.imports() {
			if !r.mayImport(part, imported, f.isTest()) {
				t.Errorf("%s imports %s, but %s may only import %q", f.path, imported, part, r.allowed[part])
			}
		}
	}
}

func (r rules) mayImport(part, imported string, inTest bool) bool {
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
	if inTest && slices.Contains([]string{"test/images", "test/netns", "test/etcd"}, dir) {
		return true
	}
	allowed := r.allowed[part]
	if inTest {
		allowed = slices.Concat(allowed, r.inTests[part])
	}
	return slices.ContainsFunc(allowed, func(other string) bool { return within(dir, other) })
}

// TestMayImport checks the checker, which could otherwise allow everything.
func TestMayImport(t *testing.T) {
	r := readRules(t)
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
		{"internal/controllers", module + "/internal/controllers/framework/owned", false, true},
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
		{"internal/node", module + "/test/netns", true, true},
		{"internal/node", module + "/test/netns", false, false},
		{"internal/node", module + "/apis/ownership/v1alpha1", false, true},
		{"kindredtest", module + "/apis/ownership/v1alpha1", false, false},
		{"test/scenarios", "k8s.io/kubernetes/pkg/apis/core", true, false},
		{"internal/node", "k8s.io/kubernetes-like/x", false, true},
		{".", module + "/internal/apiserver", false, false},
	} {
		if got := r.mayImport(tt.part, tt.imported, tt.inTest); got != tt.want {
			t.Errorf("%s may import %s (test: %v): %v, want %v", tt.part, tt.imported, tt.inTest, got, tt.want)
		}
	}
}

// TestModules: k8s.io/kubernetes is not a dependency, not even of another module, and all of
// Kubernetes' libraries have one version.
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
