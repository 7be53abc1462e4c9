// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"testing"
)

func TestSettle(t *testing.T) {
	in := func(namespace string, id int, owners ...int) node {
		n := node{id: id, kind: configMaps, namespace: namespace}
		if namespace == "" {
			n.kind = racks
		}
		for _, to := range owners {
			n.owners = append(n.owners, owner{to: to})
		}
		return n
	}
	for name, c := range map[string]struct {
		graph graph
		left  map[int][]int
	}{
		"no owners":                       {graph{in("a", 0)}, map[int][]int{0: nil}},
		"an existing owner":               {graph{in("a", 0), in("a", 1, 0)}, map[int][]int{0: nil, 1: {0}}},
		"an absent owner":                 {graph{in("a", 0, absent)}, nil},
		"an existing and an absent owner": {graph{in("a", 0), in("a", 1, absent, 0)}, map[int][]int{0: nil, 1: {0}}},
		"a chain below an absent owner":   {graph{in("a", 0, absent), in("a", 1, 0), in("a", 2, 1)}, nil},
		"a cycle":                         {graph{in("a", 0, 1), in("a", 1, 0)}, map[int][]int{0: {1}, 1: {0}}},
		"an owner of an unserved kind":    {graph{in("a", 0, absent, unserved)}, map[int][]int{0: {absent, unserved}}},
		"an owner in another namespace": {
			graph{in("a", 0), in("b", 1, 0), in("b", 2), in("b", 3, 2, 0)}, map[int][]int{0: nil, 2: nil, 3: {2}},
		},
		"a cluster-scoped owner":                     {graph{in("", 0), in("b", 1, 0)}, map[int][]int{0: nil, 1: {0}}},
		"a namespaced owner of a cluster-scoped one": {graph{in("a", 0), in("", 1, 0)}, map[int][]int{0: nil, 1: {0}}},
	} {
		t.Run(name, func(t *testing.T) {
			left := settle(c.graph)
			same := maps.EqualFunc(left, c.left, func(got []owner, want []int) bool {
				return slices.EqualFunc(got, want, func(o owner, to int) bool { return o.to == to })
			})
			if !same {
				t.Errorf("settle returns %v, want %v", left, c.left)
			}
		})
	}
}
