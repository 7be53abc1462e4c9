// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/term"
)

// tableWidth is what a table may take of a terminal, in columns.
const tableWidth = 100

// progressLine is a line on a terminal that is written over. Elsewhere there is none.
type progressLine struct {
	out io.Writer
	on  bool
}

func newProgressLine(out io.Writer) *progressLine { return &progressLine{out, term.IsTerminal(out)} }

func (p *progressLine) show(doing string) {
	if p.on {
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", cut(doing, tableWidth))
	}
}

func (p *progressLine) clear() {
	if p.on {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// cut shortens a text to a number of columns. Of "kind.group/name" the group goes first.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	kind, name, _ := strings.Cut(text, "/")
	short, group, _ := strings.Cut(kind, ".")
	if left := width - len("/") - utf8.RuneCountInString(name); group != "" && !strings.Contains(text, " ") && left > len(short)+1 {
		return cut(kind, left) + "/" + name
	}
	runes := []rune(text)
	return string(runes[:width-1]) + "…"
}

// pad fills a text up to a number of columns.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// layOut makes columns as wide as they must be, and no wider than they may: limits are of all
// but the last, which takes what is left.
func layOut(rows [][]string, limits ...int) []string {
	widths := make([]int, len(limits), len(limits)+1)
	left := tableWidth
	for i, limit := range limits {
		for _, row := range rows {
			widths[i] = min(max(widths[i], utf8.RuneCountInString(row[i])), limit)
		}
		left -= widths[i] + 2
	}
	widths = append(widths, left)
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(pad(cut(cell, widths[j]), widths[j]+2))
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// confirmed asks on the terminal.
func confirmed(cmd *cobra.Command, question string) bool {
	printf(cmd, "%s? [y/N] ", question)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// colour is an escape sequence of ECMA-48 that begins one.
type colour string

const (
	plain  colour = ""
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	faint  colour = "\x1b[2m"
)

// painter colours what is for the eyes of people.
type painter struct{ on bool }

// newPainter colours on a terminal, unless somebody does not want it (https://no-color.org).
func newPainter(out io.Writer) painter {
	return painter{on: term.IsTerminal(out) && os.Getenv("NO_COLOR") == ""}
}

func (p painter) paint(c colour, text string) string {
	if !p.on || c == plain || text == "" {
		return text
	}
	return string(c) + text + "\x1b[0m"
}
