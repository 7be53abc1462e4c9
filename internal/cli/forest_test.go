// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// graph lists the owners of each object, by number.
type graph [][]int

// randomGraph returns a graph in which any object may own any other, itself included, also twice.
func randomGraph(rng *rand.Rand) graph {
	g := make(graph, 1+rng.IntN(30))
	for i := range g {
		for range rng.IntN(4) {
			g[i] = append(g[i], rng.IntN(len(g)))
		}
	}
	return g
}

// cycleOf returns n objects, each of which owns the next.
func cycleOf(n int) graph {
	g := make(graph, n)
	for i := range g {
		g[i] = []int{(i + n - 1) % n}
	}
	return g
}

func (g graph) size() int {
	size := len(g)
	for _, owners := range g {
		size += len(owners)
	}
	return size
}

func nameOf(i int) string { return fmt.Sprintf("object-%03d", i) }

func (g graph) object(i int) ownership.TreeObject {
	var owners []string
	for _, owner := range g[i] {
		owners = append(owners, nameOf(owner))
	}
	return treeOf("Set", nameOf(i), owners...)
}

// walk returns the objects that are reachable with next, level by level, as the API does.
func (g graph) walk(from int, next func(i int) []int) []int {
	met, all := map[int]bool{from: true}, []int{from}
	for i := 0; i < len(all); i++ {
		for _, to := range next(all[i]) {
			if !met[to] {
				met[to] = true
				all = append(all, to)
			}
		}
	}
	return all
}

// tree is the API's response for an object. An object that is both above and below it is in both
// lists.
func (g graph) tree(of int) *ownership.OwnershipTree {
	tree := &ownership.OwnershipTree{}
	tree.Status.Object = g.object(of).ObjectReference
	for _, i := range g.walk(of, func(i int) []int { return g[i] })[1:] {
		tree.Status.Owners = append(tree.Status.Owners, g.object(i))
	}
	for _, i := range g.walk(of, g.dependents) {
		tree.Status.Objects = append(tree.Status.Objects, g.object(i))
	}
	return tree
}

func (g graph) dependents(of int) (all []int) {
	for i, owners := range g {
		if slices.Contains(owners, of) {
			all = append(all, i)
		}
	}
	return all
}

// forests returns the tables that the verbs print for an object and everything related to it.
func (g graph) forests(of int, all bool) map[string]*forest {
	clock := clocktesting.NewFakePassiveClock(noon)
	heads := []string{"OBJECT", "OUTCOME", "NOTES"}
	tree := g.tree(of)
	preview, undeletion := &forest{heads: heads, all: all}, &forest{heads: heads, all: all}
	for _, o := range members(tree) {
		preview.branches = append(preview.branches, previewBranch(ownership.PreviewedObject{
			ObjectReference: o.ObjectReference, Outcome: ownership.OutcomeDeleted, Owners: o.Owners,
		}, "shop", all))
		undeletion.branches = append(undeletion.branches, undeletionBranch(ownership.UndeletionComplete, ownership.UndeletionResult{
			Object: o.ObjectReference, FormerUID: o.UID, Owners: parents(o.Owners), Outcome: ownership.UndeletionRestored,
		}, "shop"))
	}
	return map[string]*forest{"tree": treePrinter{all, clock}.table(tree), "preview": preview, "undeletion": undeletion}
}

// TestForestOfAnyGraph: in any graph, each object has one row, below an owner if it has one that is
// not below the object itself, and the output is linear in objects and references.
func TestForestOfAnyGraph(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 12))
	graphs := []graph{cycleOf(1), cycleOf(2), cycleOf(20), cycleOf(50)}
	for range 400 {
		graphs = append(graphs, randomGraph(rng))
	}
	for _, g := range graphs {
		for verb, f := range g.forests(rng.IntN(len(g)), true) {
			text := f.render(painter{width: unlimited})
			checkForest(t, f)
			if lines := strings.Count(text, "\n"); lines != len(f.branches)+1 {
				t.Errorf("%s of %v: %d lines for %d objects", verb, g, lines, len(f.branches))
			}
			if limit := 150 * (g.size() + 1); len(text) > limit {
				t.Errorf("%s of %v: %d bytes, more than %d", verb, g, len(text), limit)
			}
			if t.Failed() {
				t.Fatalf("%s of %v:\n%s", verb, g, text)
			}
		}
	}
}

func checkForest(t *testing.T, f *forest) {
	t.Helper()
	met := map[string]bool{}
	for _, l := range f.lines {
		if met[l.label] {
			t.Errorf("%s has two rows", l.label)
		}
		met[l.label] = true
	}
	for i, b := range f.branches {
		at := f.at(i)
		if at.above != "" && !slices.Contains(b.above, at.above) {
			t.Errorf("%s is below %s, which is not its owner", b.id, at.above)
		}
		for _, owner := range b.above {
			if _, shown := f.index[owner]; shown && at.above == "" && owner != b.id && !at.owns(owner) {
				t.Errorf("%s is a root although %s owns it", b.id, owner)
			}
		}
	}
	if len(met) != len(f.branches) {
		t.Errorf("%d rows for %d objects", len(met), len(f.branches))
	}
}

// TestTreeOfACycle: the requested object is the root of a cycle without an outside owner.
func TestTreeOfACycle(t *testing.T) {
	f := cycleOf(3).forests(1, false)["tree"]
	want := `OBJECT                CONTROLLED  READINESS  AGE  NOTES
Set/object-001 *      yes         Ready      60m  owned by Set/object-000 (cycle)
└─ Set/object-002     yes         Ready      60m
   └─ Set/object-000  yes         Ready      60m
`
	if diff := cmp.Diff(want, f.render(painter{width: unlimited})); diff != "" {
		t.Error(diff)
	}
}

// TestDiagramsOfACycle: no object and no reference is drawn twice.
func TestDiagramsOfACycle(t *testing.T) {
	g := cycleOf(3)
	g[0] = append(g[0], g[0]...)
	for name, text := range map[string]string{"dot": dot(g.tree(1)), "mermaid": mermaid(g.tree(1))} {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		slices.Sort(lines)
		if n := len(slices.Compact(slices.Clone(lines))); n != len(lines) {
			t.Errorf("%s repeats lines:\n%s", name, text)
		}
		for i := range g {
			if n := strings.Count(text, nameOf(i)+`"]`); n != 1 {
				t.Errorf("%s has %s %d times:\n%s", name, nameOf(i), n, text)
			}
		}
	}
}

// TestManyOwners: a note names a few of hundreds of owners, and all of them with --all.
func TestManyOwners(t *testing.T) {
	const owners, dependents = 80, 160
	g := make(graph, 1+owners+dependents)
	for i := range g {
		switch {
		case i == 0:
		case i <= owners:
			g[i] = []int{0}
		default:
			for owner := range owners {
				g[i] = append(g[i], owner+1)
			}
		}
	}
	short := g.forests(0, false)["tree"].render(painter{width: 100})
	if lines := strings.Count(short, "\n"); lines > 3*len(g) {
		t.Errorf("%d lines for %d objects", lines, len(g))
	}
	wide := g.forests(0, false)["tree"].render(painter{width: unlimited})
	if want := "  also owned by Set/object-002, Set/object-003, Set/object-004 and 76 more\n"; !strings.Contains(wide, want) {
		t.Errorf("no %q in\n%s", want, wide)
	}
	if full := g.forests(0, true)["tree"].render(painter{width: unlimited}); !strings.Contains(full, "Set/object-080\n") || strings.Contains(full, " more") {
		t.Errorf("not every owner:\n%s", full)
	}
}

// TestDeepTree: rows of any depth show the object's name, and the size of a table is not quadratic
// in its depth.
func TestDeepTree(t *testing.T) {
	const depth = 3000
	g := make(graph, depth)
	for i := 1; i < depth; i++ {
		g[i] = []int{i - 1}
	}
	for _, width := range []int{80, 100, 160, unlimited} {
		text := g.forests(0, false)["tree"].render(painter{width: width})
		if len(text) > 200*depth {
			t.Errorf("%d bytes for %d objects", len(text), depth)
		}
		n := 0
		for line := range strings.Lines(text) {
			if n > 0 && !strings.Contains(line, fmt.Sprintf("Set/object-%03d ", n-1)) {
				t.Fatalf("%d columns: the name of level %d is cut: %s", width, n-1, line)
			}
			if n > drawnLevels+1 && !strings.Contains(line, fmt.Sprintf("(%d) ", n-1)) {
				t.Fatalf("%d columns: no level %d: %s", width, n-1, line)
			}
			n++
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > width {
				t.Fatalf("too wide for %d: %s", width, line)
			}
		}
	}
}

// TestLevels: rows beyond the maximum indentation are between lines that state their level.
func TestLevels(t *testing.T) {
	f := &forest{heads: []string{"OBJECT", "NOTES"}}
	for _, b := range []struct{ name, owner string }{
		{"a", ""}, {"b", "a"}, {"c", "b"}, {"d", "c"}, {"e", "d"}, {"f", "d"}, {"g", "b"}, {"h", "a"},
	} {
		f.branches = append(f.branches, branch{
			id: types.UID(b.name), ref: ownership.ObjectReference{Kind: "Set", Name: b.name + strings.Repeat("-long", 5)},
			above: []types.UID{types.UID(b.owner)}, notes: func(position) []string { return nil },
		})
	}
	got := f.render(painter{width: 43})
	for _, line := range []string{"│  │  └─ Set/d-", "│  │     (4) Set/e-", "│  │     (4) Set/f-", "│  └─ Set/g-", "└─ Set/h-"} {
		if !strings.Contains(got, "\n"+line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

// TestSiblings: the output does not depend on the order in the response.
func TestSiblings(t *testing.T) {
	tree := &ownership.OwnershipTree{}
	tree.Status.Object = treeOf("Set", "web").ObjectReference
	for _, name := range []string{"Set/web", "Pod/z", "Secret/a", "Pod/b", "ConfigMap/x"} {
		kind, name, _ := strings.Cut(name, "/")
		owner := []string{"web"}
		if name == "web" {
			owner = nil
		}
		tree.Status.Objects = append(tree.Status.Objects, treeOf(kind, name, owner...))
	}
	got := printed(func(cmd *cobra.Command) { treePrinter{clock: clocktesting.NewFakePassiveClock(noon)}.print(cmd, tree) })
	var names []string
	for line := range strings.Lines(got) {
		if _, row, found := strings.Cut(line, "─ "); found {
			names = append(names, strings.Fields(row)[0])
		}
	}
	if diff := cmp.Diff([]string{"ConfigMap/x", "Pod/b", "Pod/z", "Secret/a"}, names); diff != "" {
		t.Error(diff)
	}
}
