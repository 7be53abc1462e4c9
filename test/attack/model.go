// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// settle is the model of garbage collection: it returns the nodes that remain when the collector is
// idle, with their remaining owners. It ignores finalizers.
func settle(g graph) map[int][]owner {
	left := map[int][]owner{}
	for _, n := range g {
		left[n.id] = n.owners
	}
	for changed := true; changed; {
		changed = false
		for _, n := range g {
			owners, ok := left[n.id]
			if !ok || len(owners) == 0 {
				continue
			}
			solid, known := standing(g, left, n, owners)
			switch {
			case !known, len(solid) == len(owners):
				continue
			case len(solid) == 0:
				delete(left, n.id)
			default:
				left[n.id] = solid
			}
			changed = true
		}
	}
	return left
}

// standing returns the owners that exist. known is false for a node with an owner of an unserved
// kind, and for a cluster-scoped node with a namespaced owner: the collector ignores such nodes.
func standing(g graph, left map[int][]owner, n node, owners []owner) (solid []owner, known bool) {
	for _, o := range owners {
		to, ok := g.find(o.to)
		if o.to == unserved || ok && n.namespace == "" && to.namespace != "" {
			return nil, false
		}
		if _, lives := left[o.to]; lives && mayOwn(g, o.to, n) {
			solid = append(solid, o)
		}
	}
	return solid, true
}

// relatives returns the sorted IDs of a node and of its direct and indirect owners and dependents.
func relatives(g graph, left map[int][]owner, id int) []int {
	found := map[int]bool{id: true}
	walk(id, found, func(of int) []int { return dependents(g, left, of) })
	below := map[int]bool{id: true}
	walk(id, below, func(of int) []int { return living(g, left, of) })
	for id := range below {
		found[id] = true
	}
	var ids []int
	for id := range found {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func walk(from int, found map[int]bool, next func(int) []int) {
	for _, to := range next(from) {
		if !found[to] {
			found[to] = true
			walk(to, found, next)
		}
	}
}

// living returns the owners of a node that exist and that the collector follows.
func living(g graph, left map[int][]owner, id int) (ids []int) {
	n, _ := g.find(id)
	for _, o := range left[id] {
		if _, ok := left[o.to]; ok && mayOwn(g, o.to, n) {
			ids = append(ids, o.to)
		}
	}
	return ids
}

func dependents(g graph, left map[int][]owner, id int) (ids []int) {
	for _, n := range g {
		if _, ok := left[n.id]; ok && slices.Contains(living(g, left, n.id), id) {
			ids = append(ids, n.id)
		}
	}
	return ids
}
