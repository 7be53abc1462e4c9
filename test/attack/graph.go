// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind of object that a graph is made of.
type kind struct {
	schema.GroupVersionResource
	name       string
	namespaced bool
}

const customGroup = "attack.kindred.dev"

var (
	configMaps = kind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true}
	secrets    = kind{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", true}
	tools      = kind{schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "tools"}, "Tool", true}
	racks      = kind{schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "racks"}, "Rack", false}

	kinds = []kind{configMaps, secrets, tools, racks}
)

// Owners that are not nodes of the graph.
const (
	absent   = -1 // a served kind, and a UID that no object has
	unserved = -2 // a kind that no server knows
)

// owner is an owner reference of a node.
type owner struct {
	to                int // the ID of a node, absent or unserved
	controller, block bool
}

func (o owner) String() string {
	text := map[int]string{absent: "absent", unserved: "unserved"}[o.to]
	if text == "" {
		text = fmt.Sprintf("n%02d", o.to)
	}
	if o.controller {
		text += " controller"
	}
	if o.block {
		text += " block"
	}
	return text
}

// node is an object. Its ID stays when other nodes are removed.
type node struct {
	id         int
	kind       kind
	namespace  string // a, b, or empty
	owners     []owner
	finalizers []string
}

func (n node) String() string {
	var owners []string
	for _, o := range n.owners {
		owners = append(owners, o.String())
	}
	text := fmt.Sprintf("n%02d %s", n.id, n.kind.name)
	if n.namespace != "" {
		text += " in " + n.namespace
	}
	if len(owners) > 0 {
		text += "  owners: " + strings.Join(owners, ", ")
	}
	if len(n.finalizers) > 0 {
		text += "  finalizers: " + strings.Join(n.finalizers, ", ")
	}
	return text
}

// graph has the objects of a round.
type graph []node

func (g graph) String() string {
	var lines []string
	for _, n := range g {
		lines = append(lines, n.String())
	}
	return strings.Join(lines, "\n")
}

func (g graph) find(id int) (node, bool) {
	i := slices.IndexFunc(g, func(n node) bool { return n.id == id })
	if i < 0 {
		return node{}, false
	}
	return g[i], true
}

func (g graph) has(id int) bool {
	_, found := g.find(id)
	return found
}

// Finalizers that Kubernetes itself does not use, with and without a path.
var finalizers = []string{"attack.kindred.dev/hold", "hold.attack.kindred.dev"}

// randomGraph makes a graph of at most size nodes.
func randomGraph(rng *rand.Rand, size int) graph {
	g := make(graph, 2+rng.IntN(size-1))
	for i := range g {
		g[i] = node{id: i, kind: kinds[rng.IntN(len(kinds))]}
		if g[i].kind.namespaced {
			g[i].namespace = []string{"a", "a", "b"}[rng.IntN(3)]
		}
	}
	for i := range g {
		g[i].owners = randomOwners(rng, g, g[i])
		if rng.IntN(6) == 0 {
			g[i].finalizers = []string{randomFinalizer(rng, g[i].kind)}
		}
	}
	return g.lasting()
}

// randomFinalizer chooses a finalizer that the API accepts: built-in kinds need one with a path.
func randomFinalizer(rng *rand.Rand, k kind) string {
	if k.Group != customGroup {
		return finalizers[0]
	}
	return finalizers[rng.IntN(len(finalizers))]
}

// randomOwners chooses mostly valid owners for n, and a few of each invalid sort.
func randomOwners(rng *rand.Rand, g graph, n node) (owners []owner) {
	for range []int{0, 1, 1, 1, 2, 2, 3}[rng.IntN(7)] {
		o := owner{to: g[rng.IntN(len(g))].id, block: rng.IntN(2) == 0}
		switch rng.IntN(16) {
		case 0:
			o.to = absent
		case 1:
			o.to = unserved
		case 2: // whatever it is: itself, or in the other namespace
		default:
			for try := 0; try < 20 && !mayOwn(g, o.to, n); try++ {
				o.to = g[rng.IntN(len(g))].id
			}
		}
		if slices.ContainsFunc(owners, func(p owner) bool { return p.to == o.to }) {
			continue
		}
		o.controller = rng.IntN(2) == 0 && !slices.ContainsFunc(owners, func(p owner) bool { return p.controller })
		owners = append(owners, o)
	}
	return owners
}

// mayOwn reports whether the collector follows a reference from n to a node.
func mayOwn(g graph, to int, n node) bool {
	o, ok := g.find(to)
	return ok && (o.namespace == "" || o.namespace == n.namespace)
}

// lasting removes finalizers from nodes that are collected as soon as they are created: these would
// be terminating from the start.
func (g graph) lasting() graph {
	g = slices.Clone(g)
	left := settle(g)
	for i := range g {
		if _, ok := left[g[i].id]; !ok {
			g[i].finalizers = nil
		}
	}
	return g
}
