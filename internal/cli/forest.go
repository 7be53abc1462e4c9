// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// branch is an object in a table whose first column is a tree.
type branch struct {
	id  types.UID
	ref ownership.ObjectReference
	// mark follows the name: a star, or the namespace if it is not the usual one.
	mark string
	// rank orders siblings before their names do.
	rank int
	// above lists the objects that it may be shown below, in order of preference.
	above []types.UID
	// cells are the columns between the first and the last. colours are those of the first
	// cells, by which objects are compared when alike ones are folded.
	cells   []string
	colours []colour
	// notes returns the last column, given the position.
	notes func(at position) []string
}

// position is where an object is shown in a forest.
type position struct {
	// above is the object that it is shown below, "" for none.
	above types.UID
	// owns reports whether another object is shown below this one, directly or not.
	owns func(other types.UID) bool
}

// forest is a table of objects, each shown once, below an object that owns it. Its size is
// linear in the number of objects and references, although the graph can have cycles and
// objects with hundreds of owners.
type forest struct {
	heads    []string
	branches []branch
	// all shows every object. Without it, objects that are alike are folded into one line.
	all bool

	index    map[types.UID]int
	parents  []int // none for a root
	children [][]int
	roots    []int
	// spans are the positions in preorder of each branch and of the last one below it.
	spans [][2]int
	lines []forestLine
}

// none is the parent of a root.
const none = -1

// forestLine is a line of the table before its layout.
type forestLine struct {
	level       int
	last        bool // no sibling follows
	label, mark string
	cells       []string
	colours     []colour
	notes       []string
}

// foldAbove is the number of alike objects of one kind that are shown below an object before the
// rest is folded into a line.
const foldAbove = 10

// render draws the table.
func (f *forest) render(p painter) string {
	f.plant()
	f.number()
	for n, root := range f.roots {
		f.grow(root, 0, n == len(f.roots)-1)
	}
	return f.print(p)
}

// plant chooses the owner that each object is shown below: the preferred one, unless that one is
// below the object itself.
func (f *forest) plant() {
	f.shelve()
	owners, dependents := f.edges()
	f.parents, f.children = make([]int, len(f.branches)), make([][]int, len(f.branches))
	planted := make([]bool, len(f.branches))
	// Objects with a planted owner, first those whose preferred owner it is.
	var ready, later []int
	place := func(i, parent int) {
		planted[i], f.parents[i] = true, parent
		if parent == none {
			f.roots = append(f.roots, i)
		} else {
			f.children[parent] = append(f.children[parent], i)
		}
		for _, d := range dependents[i] {
			if owners[d][0] == i {
				ready = append(ready, d)
			} else {
				later = append(later, d)
			}
		}
	}
	for _, root := range sources(owners) {
		place(root, none)
	}
	for len(ready)+len(later) > 0 {
		next := &ready
		if len(ready) == 0 {
			next = &later
		}
		i := (*next)[0]
		*next = (*next)[1:]
		if !planted[i] {
			place(i, owners[i][slices.IndexFunc(owners[i], func(o int) bool { return planted[o] })])
		}
	}
	for _, siblings := range f.children {
		slices.SortFunc(siblings, func(a, b int) int {
			first, second := &f.branches[a], &f.branches[b]
			return cmp.Or(cmp.Compare(first.rank, second.rank), first.ref.Compare(second.ref))
		})
	}
}

// shelve indexes the branches and drops duplicates.
func (f *forest) shelve() {
	f.index = map[types.UID]int{}
	branches := make([]branch, 0, len(f.branches))
	for _, b := range f.branches {
		if _, again := f.index[b.id]; !again {
			f.index[b.id] = len(branches)
			branches = append(branches, b)
		}
	}
	f.branches = branches
}

// edges returns the owners of each branch that are in the table, and the reverse.
func (f *forest) edges() (owners, dependents [][]int) {
	owners, dependents = make([][]int, len(f.branches)), make([][]int, len(f.branches))
	for i := range f.branches {
		for _, above := range f.branches[i].above {
			if owner, shown := f.index[above]; shown && owner != i {
				owners[i] = append(owners[i], owner)
				dependents[owner] = append(dependents[owner], i)
			}
		}
	}
	return owners, dependents
}

// sources returns objects from which all others are reached: those without an owner, and the first
// object of each cycle that has no owner outside. It finds them as the strongly connected
// components without an owner outside (Tarjan, 1972).
func sources(owners [][]int) []int {
	var all, stack []int
	visit, low := make([]int, len(owners)), make([]int, len(owners)) // 0: not visited
	left := make([]bool, len(owners))                                // its component is complete
	visits := 0
	var connect func(i int) (owned bool)
	connect = func(i int) bool {
		visits++
		visit[i], low[i] = visits, visits
		stack = append(stack, i)
		height, owned := len(stack)-1, false // owned from outside the component
		for _, owner := range owners[i] {
			if visit[owner] == 0 {
				owned = connect(owner) || owned
			}
			if left[owner] {
				owned = true
			} else {
				low[i] = min(low[i], low[owner])
			}
		}
		if low[i] < visit[i] {
			return owned
		}
		component := stack[height:]
		for _, member := range component {
			left[member] = true
		}
		if !owned {
			all = append(all, slices.Min(component))
		}
		stack = stack[:height]
		return false
	}
	for i := range owners {
		if visit[i] == 0 {
			connect(i)
		}
	}
	slices.Sort(all)
	return all
}

// number fills in spans.
func (f *forest) number() {
	f.spans = make([][2]int, len(f.branches))
	next := 0
	var walk func(i int)
	walk = func(i int) {
		f.spans[i][0] = next
		next++
		for _, child := range f.children[i] {
			walk(child)
		}
		f.spans[i][1] = next - 1
	}
	for _, root := range f.roots {
		walk(root)
	}
}

// at returns the position of a branch.
func (f *forest) at(i int) position {
	p := position{owns: func(other types.UID) bool {
		o, shown := f.index[other]
		return shown && o != i && f.spans[i][0] <= f.spans[o][0] && f.spans[o][0] <= f.spans[i][1]
	}}
	if parent := f.parents[i]; parent != none {
		p.above = f.branches[parent].id
	}
	return p
}

// grow adds the lines of a branch and of all below it.
func (f *forest) grow(i, level int, last bool) {
	b := &f.branches[i]
	f.lines = append(f.lines, forestLine{
		level: level, last: last, label: kindAndName(b.ref), mark: b.mark,
		cells: b.cells, colours: b.colours, notes: b.notes(f.at(i)),
	})
	children := f.children[i]
	folded := f.fold(children)
	for n, child := range children {
		last := n == len(children)-1
		count, isFolded := folded[child]
		switch {
		case !isFolded:
			f.grow(child, level+1, last)
		case count > 0:
			f.lines = append(f.lines, foldedLine(&f.branches[child], level+1, last, count))
		}
	}
}

// fold chooses the children that are left out. The last one of a kind represents them, with their
// number.
func (f *forest) fold(children []int) map[int]int {
	if f.all || len(children) <= foldAbove {
		return nil
	}
	alike, last := map[string][]int{}, map[string]int{}
	for _, child := range children {
		b := &f.branches[child]
		if len(f.children[child]) == 0 && len(b.notes(f.at(child))) == 0 {
			key := b.ref.Kind + " " + strings.Join(b.cells[:len(b.colours)], " ")
			alike[key] = append(alike[key], child)
			last[key] = child
		}
	}
	folded := map[int]int{}
	for key, group := range alike {
		if len(group) <= foldAbove {
			continue
		}
		for _, child := range group[foldAbove-1:] {
			folded[child] = 0
		}
		folded[last[key]] = len(group) - foldAbove + 1
	}
	return folded
}

func foldedLine(b *branch, level int, last bool, count int) forestLine {
	cells := make([]string, len(b.cells))
	copy(cells, b.cells[:len(b.colours)])
	return forestLine{
		level: level, last: last, label: fmt.Sprintf("… %d more of kind %s", count, b.ref.Kind), cells: cells, colours: b.colours,
	}
}
