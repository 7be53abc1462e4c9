// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryKindHasOneStage: the list has each kind of action once, and each stage has a file, which
// states what the stage assumes and leaves, and a test.
func TestEveryKindHasOneStage(t *testing.T) {
	listed := map[Kind]int{}
	for _, s := range stages {
		listed[s.kind]++
		name := "stage" + regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(string(s.kind), func(c string) string { return "_" + strings.ToLower(c) })
		text, err := os.ReadFile(name + ".go")
		if err != nil || !strings.Contains(string(text), "// Assumes: ") || !strings.Contains(string(text), "// Leaves: ") || !strings.Contains(string(text), "// On failure: ") {
			t.Errorf("%s.go does not state what stage %s assumes and leaves: %v", name, s.kind, err)
		}
		if _, err := os.Stat(name + "_test.go"); err != nil {
			t.Errorf("stage %s has no test: %v", s.kind, err)
		}
	}
	for _, kind := range kinds(t) {
		if listed[kind] != 1 {
			t.Errorf("%s is %d times in stages", kind, listed[kind])
		}
	}
}

// kinds returns the constants of type Kind.
func kinds(t *testing.T) (kinds []Kind) {
	file, err := parser.ParseFile(token.NewFileSet(), "action.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Kind" {
				kinds = append(kinds, Kind(spec.Names[0].Name))
			}
		}
		return true
	})
	if len(kinds) == 0 {
		t.Fatal("no constants of type Kind found")
	}
	return kinds
}
