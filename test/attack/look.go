// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// inNamespace returns the flag for a node's namespace.
func (w *world) inNamespace(n node) []string {
	if n.namespace == "" {
		return nil
	}
	return []string{"--namespace", w.namespace(n)}
}

// ask runs a verb as the administrator, and decodes what it prints as JSON.
func (w *world) ask(ctx context.Context, into any, codes []int, args ...string) error {
	v := verb{config: w.adminConfig(), args: append(args, "-o", "json")}
	r, err := w.server.run(ctx, v)
	if err != nil {
		return err
	}
	if !slices.Contains(codes, r.code) {
		return fmt.Errorf("%s: %s", v, r)
	}
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		return fmt.Errorf("%s: %w; it printed:\n%s", v, err, head(r.out))
	}
	return nil
}

// tree compares the trees of nodes with the model, and bounds their size.
func (w *world) tree(ctx context.Context, s step) error {
	found, err := w.observe(ctx)
	if err != nil {
		return err
	}
	left := w.owners(found)
	edges := 0
	for _, owners := range left {
		edges += len(owners)
	}
	for _, n := range w.targets(s, found) {
		args := append([]string{"tree", w.argument(n)}, w.inNamespace(n)...)
		tree := &ownership.OwnershipTree{}
		if err := w.ask(ctx, tree, []int{0}, args...); err != nil {
			return err
		}
		var got []string
		for _, o := range append(tree.Status.Owners, tree.Status.Objects...) {
			got = append(got, o.Name)
		}
		slices.Sort(got)
		var want []string
		for _, id := range relatives(w.graph, left, n.id) {
			relative, _ := w.graph.find(id)
			want = append(want, w.name(relative))
		}
		slices.Sort(want)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			return fmt.Errorf("tree of n%02d has %q, the model %q", n.id, got, want)
		}
		for _, output := range [][]string{{"--all"}, {"-o", "dot"}, {"-o", "mermaid"}} {
			if err := w.short(ctx, append(args, output...), want, edges); err != nil {
				return err
			}
		}
	}
	return nil
}

// short checks that the number of lines of a tree is linear in its objects and edges.
func (w *world) short(ctx context.Context, args, names []string, edges int) error {
	v := verb{config: w.adminConfig(), args: args}
	r, err := w.server.run(ctx, v)
	if err != nil {
		return err
	}
	lines := strings.Count(r.out, "\n")
	if limit := 4*(len(names)+edges) + 10; r.code != 0 || lines > limit {
		return fmt.Errorf("%s: %d lines for %d objects, %s", v, lines, len(names), head(r.String()))
	}
	for _, name := range names {
		if !strings.Contains(r.out, name) {
			return fmt.Errorf("%s does not show %s:\n%s", v, name, head(r.out))
		}
	}
	return nil
}

// owners returns the owners of existing nodes by the model.
func (w *world) owners(found map[int]seen) map[int][]owner {
	left := map[int][]owner{}
	for _, n := range w.graph {
		s, ok := found[n.id]
		if !ok {
			continue
		}
		left[n.id] = slices.DeleteFunc(slices.Clone(n.owners), func(o owner) bool { return !slices.Contains(s.owners, o.String()) })
	}
	return left
}

// lint checks that references which the collector cannot resolve are found, and that objects without
// such references have no findings. The graph follows the API with a delay.
func (w *world) lint(ctx context.Context, _ step) (err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err = w.lintOnce(ctx); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (w *world) lintOnce(ctx context.Context) error {
	found, err := w.observe(ctx)
	if err != nil {
		return err
	}
	lint := &ownership.OwnershipLint{}
	if err := w.ask(ctx, lint, []int{0, 1}, "lint", "--all-namespaces"); err != nil {
		return err
	}
	rules := map[string][]ownership.LintRule{}
	for _, f := range lint.Status.Findings {
		rules[f.Object.Name] = append(rules[f.Object.Name], f.Rule)
	}
	left := w.owners(found)
	for _, n := range w.graph {
		s, exists := found[n.id]
		if !exists || s.terminating {
			continue
		}
		for rule, want := range w.expected(n, s, left) {
			if got := slices.Contains(rules[w.name(n)], rule); got != want {
				return fmt.Errorf("lint finds %s of n%02d: %t, the model says %t; %q", rule, n.id, got, want, rules[w.name(n)])
			}
		}
	}
	return nil
}

// expected reports for some rules whether a node violates them.
func (w *world) expected(n node, s seen, left map[int][]owner) map[ownership.LintRule]bool {
	want := map[ownership.LintRule]bool{
		ownership.RuleUnservedKind: false, ownership.RuleCrossNamespace: false, ownership.RuleClusterToNamespaced: false,
		ownership.RuleNeverExisted: false, ownership.RuleTwoControllers: false,
	}
	counted := len(left[n.id]) // without owners that count as absent
	for _, o := range left[n.id] {
		to, ok := w.graph.find(o.to)
		switch {
		case o.to == unserved:
			want[ownership.RuleUnservedKind] = true
		case o.to == absent:
			want[ownership.RuleNeverExisted] = true
			counted--
		case ok && n.namespace == "" && to.namespace != "":
			want[ownership.RuleClusterToNamespaced] = true
		case ok && !mayOwn(w.graph, o.to, n):
			want[ownership.RuleCrossNamespace] = true
			counted--
		}
	}
	for _, to := range w.graph {
		switch {
		case !slices.Contains(s.owners, absentNode(to.id)):
		case n.namespace == "" && to.namespace != "":
			want[ownership.RuleClusterToNamespaced] = true
			counted++
		case !want[ownership.RuleNeverExisted]:
			// It depends on timing whether the collector has seen the owner.
			delete(want, ownership.RuleNeverExisted)
		}
	}
	want[ownership.RuleTooManyOwners] = counted > 1
	return want
}

// fix makes the safe repairs, and checks that they delete nothing and leave no repair to make.
func (w *world) fix(ctx context.Context, _ step) error {
	before, err := w.observe(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range []string{"a", "b"} {
		args := []string{"lint", "--fix", "--namespace", w.run + "-" + namespace}
		repair := &ownership.OwnershipRepair{}
		if err := w.ask(ctx, repair, []int{0, 1}, args...); err != nil {
			return err
		}
		again := &ownership.OwnershipRepair{}
		if err := w.ask(ctx, again, []int{0, 1}, append(args, "--dry-run")...); err != nil {
			return err
		}
		if again.Status.Applied > 0 {
			return fmt.Errorf("lint --fix leaves %d safe repairs of %d", again.Status.Applied, repair.Status.Applied)
		}
	}
	after, err := w.observe(ctx)
	if err != nil {
		return err
	}
	for id := range before {
		if s, exists := after[id]; !exists || s.terminating != before[id].terminating {
			return fmt.Errorf("lint --fix made n%02d go", id)
		}
	}
	return nil
}
