// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path of the main module. The root package has the same path.
const module = "github.com/kindred-project/kindred"

// file is one Go file of the repository.
type file struct {
	path    string // from the repository's root, with slashes
	content string
	syntax  *ast.File
}

func (f file) dir() string     { return path.Dir(f.path) }
func (f file) isTest() bool    { return strings.HasSuffix(f.path, "_test.go") }
func (f file) generated() bool { return ast.IsGenerated(f.syntax) }

// imports are the paths of the packages that a file uses.
func (f file) imports() []string {
	var paths []string
	for _, spec := range f.syntax.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

var positions = token.NewFileSet()

// files are all Go files of the repository.
var files = sync.OnceValues(func() ([]file, error) {
	const root = "../.."
	var all []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(positions, short, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, file{filepath.ToSlash(short), string(content), syntax})
		return nil
	})
	return all, err
})

func source(t *testing.T) []file {
	t.Helper()
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("only %d files found: this is not the repository", len(all))
	}
	return all
}
