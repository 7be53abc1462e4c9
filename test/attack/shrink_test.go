// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestShrink reduces random rounds that fail because of one reference and one kind of step, and
// expects that nothing else is left.
func TestShrink(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g := randomGraph(rng, 12)
		from, to := g[0].id, g[len(g)-1].id
		g[0].owners = append(slices.DeleteFunc(g[0].owners, func(o owner) bool { return o.to == to }), owner{to: to})
		fails := func(r round) bool {
			n, ok := r.graph.find(from)
			return ok && slices.ContainsFunc(n.owners, func(o owner) bool { return o.to == to }) &&
				slices.ContainsFunc(r.steps, func(s step) bool { return s.verb == "undelete" })
		}
		small := shrink(round{g, randomSteps(rng, g)}, 10_000, fails)
		if !fails(small) {
			t.Fatalf("seed %d: the round does not fail any more:\n%s", seed, small)
		}
		n, _ := small.graph.find(from)
		if len(small.graph) != 2 || len(n.owners) != 1 || len(small.steps) != 1 || len(small.steps[0].targets) > 1 || small.steps[0].kill != noVictim {
			t.Errorf("seed %d: more than needed is left:\n%s", seed, small)
		}
	}
}

func TestShrinkStopsAtItsLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	g := randomGraph(rng, 12)
	asked := 0
	shrink(round{g, randomSteps(rng, g)}, 5, func(round) bool { asked++; return true })
	if asked != 5 {
		t.Errorf("%d rounds were tried, the limit is 5", asked)
	}
}
