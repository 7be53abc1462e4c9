// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

const (
	header = "// Copyright The Kindred Authors.\n// SPDX-License-Identifier: Apache-2.0\n"
	// longest is how many lines a file may have that is not generated.
	longest = 500
)

// TestFiles: each file has a licence header, a limited length, and no unfinished parts.
func TestFiles(t *testing.T) {
	open := []string{"TO" + "DO", "FIX" + "ME", "not " + "implemented"}
	for _, f := range source(t) {
		// Build constraints come first in generated files.
		if head, _, _ := strings.Cut(f.content, "\npackage "); !strings.Contains(head, header) {
			t.Errorf("%s does not begin with the two lines of copyright and licence", f.path)
		}
		if f.generated() {
			continue
		}
		if n := strings.Count(f.content, "\n"); n > longest {
			t.Errorf("%s has %d lines, more than %d: split it by subject", f.path, n, longest)
		}
		for _, word := range open {
			if strings.Contains(f.content, word) {
				t.Errorf("%s says %q: finish it", f.path, word)
			}
		}
	}
}

// TestPackages: each package has a package comment and a name that says what is in it.
func TestPackages(t *testing.T) {
	type pkg struct {
		name       string
		documented bool
	}
	packages := map[string]*pkg{}
	for _, f := range source(t) {
		if f.isTest() {
			continue
		}
		p := packages[f.dir()]
		if p == nil {
			p = &pkg{name: f.syntax.Name.Name}
			packages[f.dir()] = p
		}
		p.documented = p.documented || f.syntax.Doc != nil
	}
	for dir, p := range packages {
		if !p.documented {
			t.Errorf("%s has no package comment", dir)
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, p.name) {
			t.Errorf("%s: the name %s does not say what is in the package", dir, p.name)
		}
	}
}

// TestOneClock: packages get the time from an injected k8s.io/utils/clock, so that tests, and
// users of the test kit, can move it.
func TestOneClock(t *testing.T) {
	forbidden := []string{"Now", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Since", "Until"}
	for _, f := range source(t) {
		if f.isTest() || f.generated() || !strings.HasPrefix(f.path, "internal/") || !slices.Contains(f.imports(), "time") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(forbidden, selector.Sel.Name) {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" {
				t.Errorf("%v uses time.%s: use an injected clock", positions.Position(selector.Pos()), selector.Sel.Name)
			}
			return true
		})
	}
}
