// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns the documents whose files and names are checked.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		matches, err := filepath.Glob("../../" + pattern)
		if err != nil || matches == nil {
			t.Fatalf("no document matches %s: %v", pattern, err)
		}
		for _, match := range matches {
			found = append(found, strings.TrimPrefix(filepath.ToSlash(match), "../../"))
		}
	}
	return found
}

var (
	goFile    = regexp.MustCompile(`^[\w./-]+\.go$`)
	otherFile = regexp.MustCompile(`\.(json|version)$`)
	qualified = regexp.MustCompile(`^(\w+)\.(\w+)(?:\.(\w+))?$`)
)

// TestDocumentsNameFiles: the Go files that a document names exist. A path may begin at any
// directory.
func TestDocumentsNameFiles(t *testing.T) {
	files := map[string]bool{}
	for _, f := range source(t) {
		for rest := f.path; ; {
			files[rest] = true
			_, after, found := strings.Cut(rest, "/")
			if !found {
				break
			}
			rest = after
		}
	}
	for document, names := range namesIn(t) {
		for _, name := range names {
			if goFile.MatchString(name) && !files[name] {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
}

// TestDocumentsNameCode: if a document names storage.Backend, and storage is a package of
// ours, it has a declaration of that name; if it names Worker.round, and Worker is a type of
// ours, it has such a method or field.
func TestDocumentsNameCode(t *testing.T) {
	packages, members := declarations(t)
	checked := 0
	for document, names := range namesIn(t) {
		for _, name := range names {
			parts := qualified.FindStringSubmatch(strings.TrimSuffix(name, "()"))
			if parts == nil || goFile.MatchString(name) || otherFile.MatchString(name) {
				continue
			}
			owner, member := parts[1], parts[2]
			inPackage, inType := packages[owner], members[owner]
			if inPackage == nil && inType == nil {
				continue
			}
			checked++
			if !inPackage[member] && !inType[member] {
				t.Errorf("%s names %s, but no %s of ours has %s", document, name, owner, member)
			}
			if parts[3] != "" && !members[member][parts[3]] {
				t.Errorf("%s names %s, but no %s of ours has %s", document, name, member, parts[3])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d names were checked", checked)
	}
}

var testName = regexp.MustCompile(`^Test[A-Z]\w*$`)

// TestDocumentsNameTests: the tests that a document names exist.
func TestDocumentsNameTests(t *testing.T) {
	tests := map[string]bool{}
	for _, f := range source(t) {
		for _, d := range f.syntax.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && function.Recv == nil && f.isTest() {
				tests[function.Name.Name] = true
			}
		}
	}
	checked := 0
	for document, names := range namesIn(t) {
		for _, name := range names {
			if !testName.MatchString(name) {
				continue
			}
			checked++
			if !tests[name] {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d names were checked", checked)
	}
}

// namesIn returns what each document writes as code, in line.
func namesIn(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for _, document := range documents(t) {
		text, err := os.ReadFile("../../" + document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range code.FindAllStringSubmatch(string(text), -1) {
			names[document] = append(names[document], match[1])
		}
	}
	return names
}

// declarations returns the names declared in packages, and the fields and methods of types, both
// by short name.
func declarations(t *testing.T) (packages, members map[string]map[string]bool) {
	packages, members = map[string]map[string]bool{}, map[string]map[string]bool{}
	add := func(to map[string]map[string]bool, owner, name string) {
		if to[owner] == nil {
			to[owner] = map[string]bool{}
		}
		to[owner][name] = true
	}
	for _, f := range source(t) {
		if f.isTest() {
			continue
		}
		pkg := f.syntax.Name.Name
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(packages, pkg, d.Name.Name)
				} else {
					add(members, typeName(d.Recv.List[0].Type), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(packages, pkg, name.Name)
						}
					case *ast.TypeSpec:
						add(packages, pkg, spec.Name.Name)
						ast.Inspect(spec.Type, func(n ast.Node) bool {
							if field, ok := n.(*ast.Field); ok {
								for _, name := range field.Names {
									add(members, spec.Name.Name, name.Name)
								}
							}
							return true
						})
					}
				}
			}
		}
	}
	return packages, members
}

// typeName returns the name of a receiver's type, without pointer and type parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}
