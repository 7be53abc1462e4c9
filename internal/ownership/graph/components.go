// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package graph

// Components numbers the strongly connected components of the graph that is reachable from the
// roots: two values have the same number if each is reachable from the other. A component has a
// higher number than the components reachable from it. next returns the successors of a value.
//
// It is Tarjan's algorithm (https://doi.org/10.1137/0201010), linear in what it visits. It is
// iterative because chains of owners may be long.
func Components[T comparable](roots []T, next func(T) []T) map[T]int {
	type state struct {
		found, earliest int // when it was discovered, and the earliest discovery reachable from it
		rest            []T // the successors still to be followed
	}
	states, component := map[T]*state{}, map[T]int{}
	var path, open []T // the path from the root; the visited values without a component
	count := 0
	enter := func(value T) {
		states[value] = &state{len(states), len(states), next(value)}
		path, open = append(path, value), append(open, value)
	}
	leave := func(value T) {
		path = path[:len(path)-1]
		s := states[value]
		if s.earliest == s.found { // The first of its component: all values opened since belong to it.
			for closed := false; !closed; {
				member := open[len(open)-1]
				open = open[:len(open)-1]
				component[member] = count
				closed = member == value
			}
			count++
		}
		if len(path) > 0 {
			above := states[path[len(path)-1]]
			above.earliest = min(above.earliest, s.earliest)
		}
	}
	for _, root := range roots {
		if states[root] == nil {
			enter(root)
		}
		for len(path) > 0 {
			value := path[len(path)-1]
			s := states[value]
			if len(s.rest) == 0 {
				leave(value)
				continue
			}
			to := s.rest[0]
			s.rest = s.rest[1:]
			_, closed := component[to]
			switch {
			case states[to] == nil:
				enter(to)
			case !closed:
				s.earliest = min(s.earliest, states[to].found)
			}
		}
	}
	return component
}
