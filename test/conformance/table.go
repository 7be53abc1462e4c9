// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// tally counts results by their state.
type tally map[state]int

func tallyOf(results []result) tally {
	t := tally{}
	for _, r := range results {
		t[r.State]++
	}
	return t
}

// bySig groups results by special interest group, and returns the groups in order.
func bySig(results []result) (groups map[string][]result, sigs []string) {
	groups = map[string][]result{}
	for _, r := range results {
		sig := sigOf(r.Spec)
		groups[sig] = append(groups[sig], r)
	}
	return groups, slices.Sorted(maps.Keys(groups))
}

// printTable prints the results of a run: counts by group, the ten slowest specs, and the failures.
func printTable(w io.Writer, results []result) {
	groups, sigs := bySig(results)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tpassed\tfailed\tnot run\t")
	for _, sig := range sigs {
		t := tallyOf(groups[sig])
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", sig, t[passed], t[failed], t[notRun])
	}
	t := tallyOf(results)
	fmt.Fprintf(table, "all\t%d\t%d\t%d\t\n", t[passed], t[failed], t[notRun])
	table.Flush()

	fmt.Fprintln(w, "\nslowest:")
	for _, r := range slowest(results, 10) {
		fmt.Fprintf(w, "%7.1f s  %s\n", r.Seconds, r.Spec)
	}
	printState(w, results, failed)
	printState(w, results, notRun)
}

func printState(w io.Writer, results []result, s state) {
	first := true
	for _, r := range results {
		if r.State != s {
			continue
		}
		if first {
			fmt.Fprintf(w, "\n%s:\n", s)
			first = false
		}
		fmt.Fprintf(w, "  %s\n", r.Spec)
		if r.Message != "" {
			fmt.Fprintf(w, "      %s\n", r.Message)
		}
	}
}

func slowest(results []result, n int) []result {
	sorted := slices.Clone(results)
	slices.SortFunc(sorted, func(a, b result) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return sorted[:min(n, len(sorted))]
}
