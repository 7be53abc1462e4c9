// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/term"
)

const (
	// tableWidth is the width of text for pipes, files and terminals of unknown width.
	tableWidth = 100
	// unlimited is the width of a table without truncation.
	unlimited = math.MaxInt32
)

// columns returns the width of a terminal, and false if out is not a terminal. The variable COLUMNS
// has precedence, as in POSIX.
func columns(out io.Writer) (int, bool) {
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		return width, true
	}
	if !term.IsTerminal(out) {
		return 0, false
	}
	if size := (term.TTY{Out: out}).GetSize(); size != nil && size.Width > 0 {
		return int(size.Width), true
	}
	return tableWidth, true
}

// pageWidth returns the maximum width of a table: unlimited without a terminal and with "-o wide".
func pageWidth(cmd *cobra.Command) int {
	if output := cmd.Flags().Lookup("output"); output != nil && output.Value.String() == "wide" {
		return unlimited
	}
	if width, ok := columns(cmd.OutOrStdout()); ok {
		return width
	}
	return unlimited
}

// proseWidth returns the width at which sentences are wrapped.
func proseWidth(out io.Writer) int {
	if width, ok := columns(out); ok {
		return width
	}
	return tableWidth
}

// progressLine is a line on a terminal that is overwritten. It prints nothing elsewhere.
type progressLine struct {
	out io.Writer
	on  bool
}

func newProgressLine(out io.Writer) *progressLine { return &progressLine{out, term.IsTerminal(out)} }

func (p *progressLine) show(doing string) {
	if p.on {
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", cut(doing, proseWidth(p.out)-1))
	}
}

func (p *progressLine) clear() {
	if p.on {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// cut truncates a text to a number of columns. It truncates a sentence at its end and a name in its
// middle, because names of one kind often differ only in their ends; in "kind.group/name" it
// truncates the group first. A truncated text has exactly the given width.
func cut(text string, width int) string {
	runes := []rune(text)
	switch {
	case len(runes) <= width:
		return text
	case width <= 0:
		return ""
	case strings.Contains(text, " "):
		return string(runes[:width-1]) + "…"
	}
	if kind, name, found := strings.Cut(text, "/"); found {
		head := kind + "/"
		if short, group, qualified := strings.Cut(kind, "."); qualified {
			head = short + ".…/"
			if room := width - utf8.RuneCountInString(head+name); room >= 0 {
				return short + "." + string([]rune(group)[:room]) + "…/" + name
			}
		}
		if room := width - utf8.RuneCountInString(head); room >= leastName {
			return head + cutMiddle(name, room)
		}
	}
	return cutMiddle(text, width)
}

// leastName is how much of a name must fit after its kind; otherwise both are truncated as one.
const leastName = 9

// cutMiddle truncates a text in its middle.
func cutMiddle(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	tail := (width - 1) / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// pad pads a text with spaces to a number of columns.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// confirmed asks a question on the terminal and reports whether the answer is yes.
func confirmed(cmd *cobra.Command, question string) bool {
	printf(cmd, "%s? [y/N] ", question)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// colour is the ECMA-48 escape sequence that starts a colour.
type colour string

const (
	plain  colour = ""
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	faint  colour = "\x1b[2m"
)

// painter formats text for a terminal, with colours and a maximum width.
type painter struct {
	on bool
	// width is the maximum width of a table.
	width int
}

// newPainter colours on a terminal, unless NO_COLOR is set (https://no-color.org).
func newPainter(cmd *cobra.Command) painter {
	return painter{on: term.IsTerminal(cmd.OutOrStdout()) && os.Getenv("NO_COLOR") == "", width: pageWidth(cmd)}
}

func (p painter) paint(c colour, text string) string {
	if !p.on || c == plain || text == "" {
		return text
	}
	return string(c) + text + "\x1b[0m"
}
