// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

// isReleasable reports whether n, which waits for its dependents, can stop waiting: no
// dependent blocks it, or all blocking dependents wait for n in turn.
func (n *node) isReleasable() bool {
	return n.blocking == 0 || n.isBlocked() && n.isInClosedCycle()
}

// isBlocked reports whether n waits only for nodes that wait themselves. If this holds for
// every node that n waits for, directly or indirectly, none of them can make progress.
func (n *node) isBlocked() bool {
	return n.isWaiting() && n.blocking > 0 && n.blocking == n.blockingWaiting
}

// isInClosedCycle reports whether every node that n waits for also waits for n: n is in a
// strongly connected component that waits for nothing outside itself. A node that waits for
// a cycle without being part of it is released after the cycle.
func (n *node) isInClosedCycle() bool {
	below := map[*node]bool{n: true}
	for stack := []*node{n}; len(stack) > 0; {
		m := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !m.isBlocked() {
			return false
		}
		for _, dependent := range m.dependents {
			if !below[dependent] && dependent.blocks(m) {
				below[dependent] = true
				stack = append(stack, dependent)
			}
		}
	}
	// Every node below n must reach n: walk up from n and count the nodes below it.
	reached := map[*node]bool{n: true}
	for stack := []*node{n}; len(stack) > 0; {
		m := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for i := range m.edges {
			e := &m.edges[i]
			if e.blocks() && below[e.owner] && !reached[e.owner] {
				reached[e.owner] = true
				stack = append(stack, e.owner)
			}
		}
	}
	return len(reached) == len(below)
}

// blocks reports whether n is a dependent that owner waits for.
func (n *node) blocks(owner *node) bool {
	return n.anyEdge(func(e *edge) bool { return e.owner == owner && e.blocks() })
}
