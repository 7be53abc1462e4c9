// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// branch is an object in a table whose first column is a tree.
type branch struct {
	id types.UID
	// above are the objects that it may stand below, the most fitting first.
	above []types.UID
	kind  string
	label string
	// cells are the further columns but the last; colours are how the first of them, those
	// that tell what is alike, are painted.
	cells   []string
	colours []colour
	// notes fill the last column. They are made when it is known below what it stands.
	notes func(above types.UID) []string
}

// forest is a table of objects, each below one that owns it.
type forest struct {
	heads    []string
	branches []branch
	// all shows every object; without it great numbers of the same are folded.
	all bool

	place map[types.UID]int
	below map[types.UID][]int
	under map[types.UID]types.UID
	lines []forestLine
}

type forestLine struct {
	tree    string
	cells   []string
	colours []colour
	notes   []string
}

// foldAbove is how many objects of the same kind, all alike, stand below another one before
// the rest of them is folded into a line.
const foldAbove = 10

// render draws the table, tableWidth columns wide at most.
func (f *forest) render(p painter) string {
	f.plant()
	for _, root := range f.below[""] {
		f.grow(root, "", "")
	}
	return f.print(p)
}

// plant decides below which object each stands.
func (f *forest) plant() {
	f.place, f.below, f.under = map[types.UID]int{}, map[types.UID][]int{}, map[types.UID]types.UID{}
	for i := range f.branches {
		f.place[f.branches[i].id] = i
	}
	for i := range f.branches {
		b := &f.branches[i]
		above := f.parent(b)
		f.under[b.id] = above
		f.below[above] = append(f.below[above], i)
	}
}

// parent is the first of b's possible parents that is in the table, and not below b itself.
func (f *forest) parent(b *branch) types.UID {
	for _, above := range b.above {
		if _, shown := f.place[above]; shown && !f.isBelow(above, b.id) {
			return above
		}
	}
	return ""
}

// isBelow tells whether id is ancestor, or stands below it. Owners can go in circles.
func (f *forest) isBelow(id, ancestor types.UID) bool {
	for ; id != ""; id = f.under[id] {
		if id == ancestor {
			return true
		}
	}
	return false
}

// grow draws a branch and all below it.
func (f *forest) grow(i int, first, rest string) {
	b := &f.branches[i]
	f.lines = append(f.lines, forestLine{
		tree: first + b.label, cells: b.cells, colours: b.colours, notes: b.notes(f.under[b.id]),
	})
	children := f.below[b.id]
	folded := f.fold(children)
	for n, child := range children {
		last := n == len(children)-1
		mark, indent := "├─ ", "│  "
		if last {
			mark, indent = "└─ ", "   "
		}
		count, isFolded := folded[child]
		switch {
		case !isFolded:
			f.grow(child, rest+mark, rest+indent)
		case count > 0:
			f.lines = append(f.lines, f.foldedLine(&f.branches[child], rest+mark, count))
		}
	}
}

// fold finds the children that are not worth a line each. The last of a kind stands for all
// of them that are left out, and has their number.
func (f *forest) fold(children []int) map[int]int {
	if f.all {
		return nil
	}
	alike, last := map[string][]int{}, map[string]int{}
	for _, child := range children {
		b := &f.branches[child]
		if len(f.below[b.id]) == 0 && len(b.notes(f.under[b.id])) == 0 {
			key := b.kind + strings.Join(b.cells[:len(b.colours)], " ")
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

func (f *forest) foldedLine(b *branch, mark string, count int) forestLine {
	cells := make([]string, len(b.cells))
	copy(cells, b.cells[:len(b.colours)])
	return forestLine{tree: fmt.Sprintf("%s… %d more of kind %s", mark, count, b.kind), cells: cells, colours: b.colours}
}

func (f *forest) print(p painter) string {
	widths := f.widths()
	notesAt := 0
	for _, w := range widths {
		notesAt += w + 2
	}
	var out strings.Builder
	write := func(cells []string, colours []colour, notes []string) {
		var line strings.Builder
		for i, cell := range cells {
			text := pad(cut(cell, widths[i]), widths[i])
			if i > 0 && i-1 < len(colours) {
				text = p.paint(colours[i-1], text)
			}
			line.WriteString(text + "  ")
		}
		wrapped := wrap(notes, tableWidth-notesAt)
		if len(wrapped) == 0 {
			wrapped = []string{""}
		}
		for i, note := range wrapped {
			if i > 0 {
				line.Reset()
				line.WriteString(strings.Repeat(" ", notesAt))
			}
			out.WriteString(strings.TrimRight(line.String()+note, " ") + "\n")
		}
	}
	write(f.heads[:len(f.heads)-1], nil, f.heads[len(f.heads)-1:])
	for _, l := range f.lines {
		write(append([]string{l.tree}, l.cells...), l.colours, l.notes)
	}
	return out.String()
}

// notesWidth is what the notes have at least.
const notesWidth = 30

// widths are those of all columns but the last. The tree gives way.
func (f *forest) widths() []int {
	widths := make([]int, len(f.heads)-1)
	measure := func(i int, text string) { widths[i] = max(widths[i], utf8.RuneCountInString(text)) }
	for i, head := range f.heads[:len(widths)] {
		measure(i, head)
	}
	for _, l := range f.lines {
		measure(0, l.tree)
		for i, cell := range l.cells {
			measure(i+1, cell)
		}
	}
	others := 0
	for _, w := range widths[1:] {
		others += w + 2
	}
	widths[0] = min(widths[0], tableWidth-others-2-notesWidth)
	return widths
}

// wrap breaks notes into lines of a width. Notes that follow each other in a line are
// separated by a semicolon.
func wrap(notes []string, width int) []string {
	var lines []string
	line := ""
	for i, note := range notes {
		if i < len(notes)-1 {
			note += ";"
		}
		for _, word := range strings.Fields(note) {
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
				lines, line = append(lines, line), ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
