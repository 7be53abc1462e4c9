// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

// Hint is a set of NUMA nodes on which an amount of a resource can be allocated. No nodes means any. A hint is
// preferred if no smaller set of nodes could have that much of the resource.
type Hint struct {
	Nodes     Mask
	Preferred bool
}

// Hints are the hints of one resource. Nil means that the resource has no preference; empty, that no nodes have
// enough of it.
type Hints []Hint

func (h Hints) orDefault() Hints {
	switch {
	case h == nil:
		return Hints{{Preferred: true}}
	case len(h) == 0:
		return Hints{{}}
	}
	return h
}

// Merge returns the best hint on which all resources agree, and whether the policy admits it. A combination takes
// one hint of each resource: its nodes are those that all of them have, and it is preferred if all are and all have
// the same nodes. Merge does not enumerate combinations, of which there may be very many, but only the sets of
// nodes that they result in.
func (p *Policy) Merge(resources []Hints) (Hint, bool) {
	if p.Name == None {
		return Hint{}, true
	}
	lists := make([]Hints, len(resources))
	for i, r := range resources {
		lists[i] = p.consider(r.orDefault())
	}
	all := p.machine.NodeMask()
	best := p.mergePreferred(lists, all)
	if best == (Hint{}) {
		best = p.mergeOther(lists, all)
	}
	if p.Name == SingleNUMANode && best.Nodes == all {
		best.Nodes = 0
	}
	return best, p.Name == BestEffort || best.Preferred
}

// consider returns the hints that the policy considers.
func (p *Policy) consider(list Hints) Hints {
	if p.Name != SingleNUMANode {
		return list
	}
	kept := Hints{}
	for _, h := range list {
		if h.Preferred && h.Nodes.Count() <= 1 {
			kept = append(kept, h)
		}
	}
	return kept
}

// mergePreferred returns the best preferred combination, or no hint.
func (p *Policy) mergePreferred(lists []Hints, all Mask) Hint {
	candidates := map[Mask]bool{}
	for _, list := range lists {
		for _, h := range list {
			if h.Preferred {
				candidates[h.Nodes] = true
			}
		}
	}
	best := Hint{}
	if agrees(lists, 0) {
		best = Hint{Nodes: all, Preferred: true}
	}
	for nodes := range candidates {
		if nodes != 0 && agrees(lists, nodes) && (best.Nodes == 0 || p.closer(nodes, best.Nodes)) {
			best = Hint{Nodes: nodes, Preferred: true}
		}
	}
	return best
}

// mergeOther returns the best combination of any hints. It has as many nodes as the resource needs that needs most,
// else fewer, else more.
func (p *Policy) mergeOther(lists []Hints, all Mask) Hint {
	reached, want := map[Mask]bool{all: true}, 0
	for _, list := range lists {
		next, narrowest := map[Mask]bool{}, Mask(0)
		for _, h := range list {
			nodes := h.Nodes
			if nodes == 0 {
				nodes = all
			} else if narrowest == 0 || nodes.Narrower(narrowest) {
				narrowest = nodes
			}
			for m := range reached {
				next[m&nodes] = true
			}
		}
		reached, want = next, max(want, narrowest.Count())
	}
	best := Mask(0)
	for m := range reached {
		if m != 0 && (best == 0 || p.better(m, best, want)) {
			best = m
		}
	}
	if best == 0 {
		best = all
	}
	return Hint{Nodes: best}
}

// better orders combinations that are not preferred.
func (p *Policy) better(a, b Mask, want int) bool {
	countA, countB := a.Count(), b.Count()
	switch {
	case countA == countB:
		return p.closer(a, b)
	case countA == want || countB == want:
		return countA == want
	case countA < want && countB < want:
		return countA > countB
	}
	return countA < countB
}

// closer reports whether a is better than b, given that both are preferred or have as many nodes.
func (p *Policy) closer(a, b Mask) bool {
	if !p.preferClosest || p.Name == SingleNUMANode || a.Count() != b.Count() {
		return a.Narrower(b)
	}
	distanceA, distanceB := p.machine.distance(a), p.machine.distance(b)
	if distanceA != distanceB {
		return distanceA < distanceB
	}
	return a < b
}

// agrees reports whether each resource prefers these nodes or any.
func agrees(lists []Hints, nodes Mask) bool {
	for _, list := range lists {
		found := false
		for _, h := range list {
			found = found || h.Preferred && (h.Nodes == nodes || h.Nodes == 0)
		}
		if !found {
			return false
		}
	}
	return true
}
