// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// round is a graph and the steps that are applied to it.
type round struct {
	graph graph
	steps []step
}

// shrink returns the smallest round that it finds among those that still fail. It stops when none
// of the next smaller ones fails, or when fails has been asked limit times.
func shrink(r round, limit int, fails func(round) bool) round {
	for {
		smaller, found := firstOf(smallerRounds(r), &limit, fails)
		if !found {
			return r
		}
		r = smaller
	}
}

func firstOf(rounds []round, limit *int, fails func(round) bool) (round, bool) {
	for _, r := range rounds {
		if *limit == 0 {
			return round{}, false
		}
		*limit--
		if fails(r) {
			return r, true
		}
	}
	return round{}, false
}

// smallerRounds returns rounds with one part removed, the largest parts first.
func smallerRounds(r round) (smaller []round) {
	for i := range r.steps {
		smaller = append(smaller, round{r.graph, slices.Delete(slices.Clone(r.steps), i, i+1)})
	}
	for i := range r.graph {
		smaller = append(smaller, round{r.graph.without(r.graph[i].id), r.steps})
	}
	for i, s := range r.steps {
		for _, simple := range s.simpler() {
			steps := slices.Clone(r.steps)
			steps[i] = simple
			smaller = append(smaller, round{r.graph, steps})
		}
	}
	for i, n := range r.graph {
		for j := range n.owners {
			n := n
			n.owners = slices.Delete(slices.Clone(n.owners), j, j+1)
			smaller = append(smaller, round{r.graph.with(i, n), r.steps})
		}
		if len(n.finalizers) > 0 {
			n.finalizers = nil
			smaller = append(smaller, round{r.graph.with(i, n), r.steps})
		}
	}
	return slices.DeleteFunc(smaller, func(r round) bool { return len(r.steps) == 0 || len(r.graph) == 0 })
}

// without returns the graph without a node and without references to it.
func (g graph) without(id int) graph {
	var rest graph
	for _, n := range g {
		if n.id == id {
			continue
		}
		n.owners = slices.DeleteFunc(slices.Clone(n.owners), func(o owner) bool { return o.to == id })
		rest = append(rest, n)
	}
	return rest.lasting()
}

func (g graph) with(i int, n node) graph {
	g = slices.Clone(g)
	g[i] = n
	return g.lasting()
}
