// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const architecture = "docs/architecture.md"

// rules are the import rules of docs/architecture.md.
type rules struct {
	// allowed has, for each part, the other parts that it may import. A part is a directory with
	// all directories below it that are no parts themselves; "." is the root package.
	allowed map[string][]string
	// inTests has what the tests of a part may import as well.
	inTests map[string][]string
}

var importRules = sync.OnceValues(func() (rules, error) {
	text, err := os.ReadFile("../../" + architecture)
	if err != nil {
		return rules{}, err
	}
	return parseRules(section(string(text), "Import rules"))
})

func readRules(t *testing.T) rules {
	t.Helper()
	r, err := importRules()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.allowed) < 20 {
		t.Fatalf("only %d import rules found in %s", len(r.allowed), architecture)
	}
	return r
}

// section returns the text below a heading of the second level, up to the next one.
func section(text, heading string) string {
	_, after, _ := strings.Cut(text, "\n## "+heading+"\n")
	found, _, _ := strings.Cut(after, "\n## ")
	return found
}

var code = regexp.MustCompile("`([^`]+)`")

// parseRules reads tables with a part in the first column and its imports in the second.
func parseRules(text string) (rules, error) {
	r := rules{allowed: map[string][]string{}, inTests: map[string][]string{}}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		part, imports := code.FindStringSubmatch(cells[1])[1], []string{}
		for _, match := range code.FindAllStringSubmatch(cells[2], -1) {
			imports = append(imports, match[1])
		}
		to := r.allowed
		if strings.Contains(cells[1], "in tests") {
			to = r.inTests
		}
		if _, found := to[part]; found {
			return r, fmt.Errorf("%s has two rows for %s", architecture, part)
		}
		to[part] = imports
	}
	return r, nil
}

func TestParseRules(t *testing.T) {
	text := "\n## Before\n| `x` | `y` | |\n## Import rules\ntext with `a`\n| part | may import | why |\n|---|---|---|\n" +
		"| `a/b` | `c` `.` | like `d` |\n| `c` | | |\n| `c`, in tests | `d` | |\n## After\n| `e` | | |\n"
	r, err := parseRules(section(text, "Import rules"))
	if err != nil || len(r.allowed) != 2 || !slices.Equal(r.allowed["a/b"], []string{"c", "."}) || len(r.allowed["c"]) != 0 || !slices.Equal(r.inTests["c"], []string{"d"}) {
		t.Errorf("%v, error %v", r, err)
	}
	if _, err := parseRules("| `c` | | |\n| `c` | | |\n"); err == nil {
		t.Error("two rows for one part are accepted")
	}
}

// TestRulesNameParts: the import rules name only directories that have packages.
func TestRulesNameParts(t *testing.T) {
	r, dirs := readRules(t), packageDirs(t)
	for _, table := range []map[string][]string{r.allowed, r.inTests} {
		for part, imports := range table {
			for _, name := range append([]string{part}, imports...) {
				if !slices.ContainsFunc(dirs, func(dir string) bool { return within(dir, name) }) {
					t.Errorf("%s: the import rule of %s names %s, which has no packages", architecture, part, name)
				}
			}
		}
	}
}

// packageDirs are the directories with Go files.
func packageDirs(t *testing.T) []string {
	var dirs []string
	for _, f := range source(t) {
		dirs = append(dirs, f.dir())
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// TestTree: everything in the source tree of docs/architecture.md exists, and every package is
// in it, or a directory above it is.
func TestTree(t *testing.T) {
	text, err := os.ReadFile("../../" + architecture)
	if err != nil {
		t.Fatal(err)
	}
	named := tree(section(string(text), "Source tree"))
	if len(named) < 40 {
		t.Fatalf("only %d entries found in the source tree of %s", len(named), architecture)
	}
	for _, name := range named {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Errorf("%s names %s: %v", architecture, name, err)
		}
	}
	// These name no package themselves: the directories in them have to be named.
	for _, group := range []string{"internal", "internal/ownership", "test"} {
		named = slices.DeleteFunc(named, func(name string) bool { return name == group })
	}
	for _, dir := range packageDirs(t) {
		if dir != "." && !slices.ContainsFunc(named, func(name string) bool { return within(dir, name) }) {
			t.Errorf("%s does not name %s", architecture, dir)
		}
	}
}

var treeLine = regexp.MustCompile(`^( {4,12})((?:[\w.-]+[\w./-]* )*[\w.-]+[\w./-]*)(?:  |$)`)

// tree returns the paths in an indented list of files and directories. A directory ends with a
// slash. The entries below it are indented further; several may be on one line.
func tree(text string) []string {
	type level struct {
		indent int
		path   string
	}
	var (
		found []string
		above []level
	)
	for line := range strings.Lines(text) {
		match := treeLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			continue
		}
		indent := len(match[1])
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		parent := ""
		if len(above) > 0 {
			parent = above[len(above)-1].path
		}
		for _, name := range strings.Fields(match[2]) {
			full := path.Join(parent, name)
			found = append(found, full)
			if strings.HasSuffix(name, "/") {
				above = append(above, level{indent, full})
			}
		}
	}
	return found
}

func TestTreeIsParsed(t *testing.T) {
	got := tree("Text.\n\n    a/b/          text\n    f.go          text: x/ y/\n                  text z/\n    c/\n      d/ e/\n        g.go  text\n      h/      text\n    i/\n")
	if want := []string{"a/b", "f.go", "c", "c/d", "c/e", "c/e/g.go", "c/h", "i"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
