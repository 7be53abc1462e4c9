// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// eve sends requests as a user who has all rights in namespace a and none elsewhere. No response may
// name an object that she may not read, except for owners in the references of objects that she
// may read, and no object that she may not write may change.
func (w *world) eve(ctx context.Context, _ step) error {
	before, err := w.observe(ctx)
	if err != nil {
		return err
	}
	for _, n := range w.graph {
		_, exists := before[n.id]
		for _, args := range w.questions(n, exists) {
			r, err := w.server.run(ctx, verb{config: w.eveConfig(), args: args})
			if err != nil {
				return err
			}
			if n.namespace != "a" && r.code == 0 {
				return fmt.Errorf("eve may not get n%02d, and kindred %q answers: %s", n.id, args, r)
			}
			if name := w.leaked(r, n, before, args[0] == "why" && !exists); name != "" {
				return fmt.Errorf("kindred %q tells eve of %s: %s", args, name, r)
			}
		}
	}
	after, err := w.observe(ctx)
	if err != nil {
		return err
	}
	return w.sameGraph(before, after)
}

// questions returns all read requests about a node, and writes if the node is not in namespace a.
func (w *world) questions(n node, exists bool) (questions [][]string) {
	verbs := [][]string{{"why"}, {"why", "-o", "json"}, {"undelete", "--dry-run"}, {"undelete", "--dry-run", "-o", "json"}}
	if exists {
		verbs = [][]string{{"why"}, {"why", "-o", "json"}, {"tree"}, {"tree", "-o", "json"}, {"tree", "-o", "dot"}, {"delete", "--preview"}, {"delete", "--preview", "-o", "json"}, {"lint"}}
	}
	if n.namespace != "a" {
		verbs = append(verbs, map[bool][]string{true: {"delete", "--yes"}, false: {"undelete"}}[exists])
	}
	for _, v := range verbs {
		questions = append(questions, slices.Concat(v, []string{w.argument(n)}, w.inNamespace(n)))
	}
	return questions
}

// leaked returns the name of an object that a response about asked must not contain. If the
// collector first saw a reference when its owner had been deleted, it cannot know that the owner was
// in another namespace, and names it as the reference does.
func (w *world) leaked(r result, asked node, before map[int]seen, gone bool) string {
	for _, n := range w.graph {
		_, exists := before[n.id]
		if n.namespace == "a" || n.id == asked.id || w.namedInA(n) && (!gone || !exists) {
			continue
		}
		if strings.Contains(r.out+r.err, w.name(n)) {
			return w.name(n)
		}
	}
	if b := w.run + "-b"; asked.namespace == "a" && strings.Contains(r.out+r.err, b) {
		return b
	}
	return ""
}

// namedInA reports whether an object in namespace a has n as an owner.
func (w *world) namedInA(n node) bool {
	return slices.ContainsFunc(w.graph, func(d node) bool {
		return d.namespace == "a" && slices.ContainsFunc(d.owners, func(o owner) bool { return o.to == n.id })
	})
}
