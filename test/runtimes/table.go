// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table has the results of all scenarios, a column for each runtime.
type table struct {
	runtimes []string
	results  []map[string]result
}

func (t *table) add(runtime string, results map[string]result) {
	t.runtimes = append(t.runtimes, runtime)
	t.results = append(t.results, results)
}

// failed returns the number of failed scenarios of all runtimes.
func (t *table) failed() int {
	n := 0
	for _, results := range t.results {
		for _, r := range results {
			if r.action == "fail" {
				n++
			}
		}
	}
	return n
}

func (t *table) String() string {
	scenarios := map[string]bool{}
	for _, results := range t.results {
		for name := range results {
			scenarios[name] = true
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "scenario\t%s\n", strings.Join(t.runtimes, "\t"))
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		cells := []string{strings.TrimPrefix(name, "Test")}
		for _, results := range t.results {
			cells = append(cells, cell(results[name]))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // a strings.Builder accepts all
	return b.String()
}

func cell(r result) string {
	if r.action == "" {
		return "not run"
	}
	return fmt.Sprintf("%s %v", r.action, r.elapsed.Round(100*time.Millisecond))
}
