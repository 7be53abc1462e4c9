// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestComparisons(t *testing.T) {
	const ours, theirs = 2.0, 8.0
	for name, test := range map[string]struct {
		comparison
		want float64
	}{
		"share":  {share, 0.25},
		"faster": {faster, 4},
		"more":   {more, 0.25},
	} {
		if got := test.of(ours, theirs); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// TestHistory: results are appended, and without a file nothing is written.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.tsv")
	b := &bench{history: path}
	for _, r := range []result{{"beside-start", 0.75, 3.9, 0.192, "0.50", "1.20"}, {"beside-scale", 1.1, 2.2, 2, "2.00", "3.00"}} {
		if err := b.remember(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&bench{}).remember(context.Background(), result{}); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("the history has %d lines, not 2:\n%s", len(lines), text)
	}
	columns := strings.Split(lines[0], "\t")
	if got, want := strings.Join(columns[2:], " "), "beside-start 0.75 3.9 0.192 0.50 1.20"; got != want || columns[0] == "" || columns[1] == "" {
		t.Errorf("the first line is %q, which should end with %q", lines[0], want)
	}
}

// TestNames: -run selects figures by name.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range figures() {
		if seen[f.name] {
			t.Errorf("two figures are called %s", f.name)
		}
		seen[f.name] = true
	}
}
