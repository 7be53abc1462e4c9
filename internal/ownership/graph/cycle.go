// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

// released tells whether n, which waits for its dependents, need not wait longer:
// none blocks it, or all that do wait for n in turn.
func (n *node) released() bool {
	return n.blocking == 0 || n.blocked() && n.inClosedCycle()
}

// blocked tells whether n waits only for nodes that wait themselves. If that
// holds for all that n waits for, directly or not, nobody will ever move.
func (n *node) blocked() bool {
	return n.waiting() && n.blocking > 0 && n.blocking == n.blockingWaiting
}

// inClosedCycle tells whether everything n waits for waits for n: n is in a
// strongly connected component that waits for nothing outside itself. When n
// waits for a circle without being part of it, it goes after the circle.
func (n *node) inClosedCycle() bool {
	below := map[*node]bool{n: true}
	for stack := []*node{n}; len(stack) > 0; {
		m := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !m.blocked() {
			return false
		}
		for _, dependent := range m.dependents {
			if !below[dependent] && dependent.blocks(m) {
				below[dependent] = true
				stack = append(stack, dependent)
			}
		}
	}
	// Every node below n must reach n: walk up from n and count who is met.
	met := map[*node]bool{n: true}
	for stack := []*node{n}; len(stack) > 0; {
		m := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for i := range m.edges {
			e := &m.edges[i]
			if e.blocks() && below[e.owner] && !met[e.owner] {
				met[e.owner] = true
				stack = append(stack, e.owner)
			}
		}
	}
	return len(met) == len(below)
}

// blocks tells whether n is a dependent that owner waits for.
func (n *node) blocks(owner *node) bool {
	return n.any(func(e *edge) bool { return e.owner == owner && e.blocks() })
}
