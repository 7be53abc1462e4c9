// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProgramKey: the key depends on every input of a program.
func TestProgramKey(t *testing.T) {
	module := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n")
	write("go.sum", "")
	p := Program{Name: "p", Package: "example.com/m/p"}
	seen := map[string]string{}
	see := func(what string, p Program) {
		t.Helper()
		key, err := p.key(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		if other, found := seen[key]; found {
			t.Errorf("the key of %s is that of %s", what, other)
		}
		seen[key] = what
	}
	t.Setenv("GOFLAGS", "") // the environment may have the flags of the test
	see("the program", p)
	see("another program", Program{Name: "p", Package: "example.com/m/q"})
	see("a stamped program", Program{Name: "p", Package: p.Package, LDFlags: "-s"})
	see("its tests", Program{Name: "p", Package: p.Package, Tests: true})
	t.Setenv("GOFLAGS", "-trimpath")
	see("other flags", p)
	t.Setenv("GOFLAGS", "")
	write("go.sum", "example.com/n v1.0.0 h1:\n")
	see("other versions", p)
	write("go.mod", "module example.com/m\n\nrequire example.com/n v1.0.0\n")
	see("another module", p)
}
