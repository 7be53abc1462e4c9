// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// drawnLevels is the maximum number of levels that are indented; a narrow terminal has room
	// for fewer. A deeper line has the number of its level instead, and its parent is the
	// nearest line above whose level is one less.
	drawnLevels = 12
	// indentWidth is the width of a level.
	indentWidth = 3
	// notesWidth is the minimum width of notes that are wrapped.
	notesWidth = 30
	// treeWidth is the minimum width of the tree.
	treeWidth = 24
)

// print draws the lines of a forest as a table, no wider than the painter's page. Notes are
// wrapped and the tree is shortened if they do not fit.
func (f *forest) print(p painter) string {
	page := p.width
	widths := f.widths()
	beside := 0
	for _, w := range widths[1:] {
		beside += w + gap
	}
	tree := max(treeWidth, page-gap-beside-min(notesWidth, f.longestNotes()))
	rails := f.rails(f.levels(tree))
	for i, l := range f.lines {
		widths[0] = max(widths[0], utf8.RuneCountInString(rails[i]+l.label+l.mark))
	}
	widths[0] = min(widths[0], tree)
	notesAt := widths[0] + gap + beside
	var out strings.Builder
	f.row(&out, p, widths, f.heads[:len(f.heads)-1], nil, f.heads[len(f.heads)-1:])
	for i, l := range f.lines {
		room := widths[0] - utf8.RuneCountInString(rails[i]+l.mark)
		cells := append([]string{rails[i] + cut(l.label, room) + l.mark}, l.cells...)
		f.row(&out, p, widths, cells, l.colours, wrap(l.notes, max(treeWidth, page-notesAt)))
	}
	return out.String()
}

// gap is the space between two columns.
const gap = 2

// row writes a line of the table, and one more for each further line of notes.
func (f *forest) row(out *strings.Builder, p painter, widths []int, cells []string, colours []colour, notes []string) {
	var line strings.Builder
	notesAt := 0
	for i, cell := range cells {
		text := pad(cell, widths[i])
		if i > 0 && i-1 < len(colours) {
			text = p.paint(colours[i-1], text)
		}
		line.WriteString(text + strings.Repeat(" ", gap))
		notesAt += widths[i] + gap
	}
	if len(notes) == 0 {
		notes = []string{""}
	}
	for i, note := range notes {
		if i > 0 {
			line.Reset()
			line.WriteString(strings.Repeat(" ", notesAt))
		}
		out.WriteString(strings.TrimRight(line.String()+note, " ") + "\n")
	}
}

// widths returns the widths of all columns but the last; that of the tree only fits its head.
func (f *forest) widths() []int {
	widths := make([]int, len(f.heads)-1)
	for i, head := range f.heads[:len(widths)] {
		widths[i] = utf8.RuneCountInString(head)
	}
	for _, l := range f.lines {
		for i, cell := range l.cells {
			widths[i+1] = max(widths[i+1], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// longestNotes returns the width of the longest notes without wrapping.
func (f *forest) longestNotes() int {
	longest := utf8.RuneCountInString(f.heads[len(f.heads)-1])
	for _, l := range f.lines {
		for _, line := range wrap(l.notes, unlimited) {
			longest = max(longest, utf8.RuneCountInString(line))
		}
	}
	return longest
}

// levels returns the number of levels that can be indented in a width, of which names take up to
// three quarters.
func (f *forest) levels(width int) int {
	names, deepest := 0, 0
	for _, l := range f.lines {
		names = max(names, utf8.RuneCountInString(l.label+l.mark))
		deepest = max(deepest, l.level)
	}
	room := func(names int) int {
		return min(max((width-min(names, width/4*3))/indentWidth, 2), drawnLevels)
	}
	if levels := room(names); deepest <= levels {
		return levels
	}
	return room(len(levelNumber(deepest)) + names)
}

// levelNumber returns the prefix of a name in a line that is too deep to be indented.
func levelNumber(level int) string { return "(" + strconv.Itoa(level) + ") " }

// rails returns the lines of the tree, drawn for the given number of levels.
func (f *forest) rails(levels int) []string {
	all := make([]string, len(f.lines))
	rails := make([]string, 0, levels) // of the levels above
	for i, l := range f.lines {
		rails = rails[:min(max(l.level-1, 0), len(rails))]
		above := strings.Join(rails, "")
		switch {
		case l.level == 0:
		case l.level > levels:
			all[i] = above + levelNumber(l.level)
		case l.last:
			all[i] = above + "└─ "
			rails = append(rails, "   ")
		default:
			all[i] = above + "├─ "
			rails = append(rails, "│  ")
		}
	}
	return all
}

// layOut makes columns as wide as their cells. If they do not fit into a width, all but the last
// are limited, and the last gets the rest.
func layOut(width int, rows [][]string, limits ...int) []string {
	widths := make([]int, len(limits)+1)
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	left := width
	for _, w := range widths {
		left -= w + gap
	}
	if left += gap; left < 0 {
		left = width
		for i, limit := range limits {
			widths[i] = min(widths[i], limit)
			left -= widths[i] + gap
		}
		widths[len(limits)] = max(left, 1)
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(pad(cut(cell, widths[j]), widths[j]+gap))
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// wrap breaks notes into lines of a width. Notes that follow each other in a line are
// separated by a semicolon.
func wrap(notes []string, width int) []string {
	var lines, line []string
	used := 0
	for i, note := range notes {
		words := strings.Fields(note)
		if i < len(notes)-1 && len(words) > 0 {
			words[len(words)-1] += ";"
		}
		for _, word := range words {
			n := utf8.RuneCountInString(word)
			if len(line) > 0 && used+n > width {
				lines, line, used = append(lines, strings.Join(line, " ")), nil, 0
			}
			line = append(line, word)
			used += n + 1
		}
	}
	if len(line) > 0 {
		lines = append(lines, strings.Join(line, " "))
	}
	return slices.Clip(lines)
}
