// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// Use is what one container of a pod has. Uses are in the order in which the containers start.
type Use struct {
	// Ends is set for an init container that ends before the next container starts.
	Ends   bool
	Blocks []Block
}

// Request is a request for memory of one container, or of a pod as a whole.
type Request struct {
	Wanted map[v1.ResourceName]uint64
	Ends   bool    // as in Use
	Others []Block // what other pods hold
	Pod    []Use   // what the pod's containers have that start earlier
}

// Held returns what a pod holds: an init container that ends leaves its memory to later containers.
func Held(uses []Use) []Block {
	type place struct {
		nodes topology.Mask
		name  v1.ResourceName
	}
	stays, most := map[place]uint64{}, map[place]uint64{}
	for _, u := range uses {
		for _, b := range u.Blocks {
			at := place{b.Nodes, b.Type}
			most[at] = max(most[at], stays[at]+b.Size)
			if !u.Ends {
				stays[at] += b.Size
			}
		}
	}
	var held []Block
	for at, size := range most {
		held = append(held, Block{Nodes: at.nodes, Type: at.name, Size: size})
	}
	slices.SortFunc(held, func(a, b Block) int { return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Type, b.Type)) })
	return held
}

// Allocate chooses the nodes for a request. chosen are the nodes that the topology policy chose; if they do not have
// enough, others are added. The blocks all have the same nodes.
func (p *Policy) Allocate(r Request, chosen topology.Hint) ([]Block, error) {
	if len(r.Wanted) == 0 {
		return nil, nil
	}
	hints := p.hints(r)
	best := topology.Hint{}
	if slices.ContainsFunc(hints, func(h topology.Hint) bool { return h.Nodes == chosen.Nodes }) {
		best = chosen
	} else {
		best = narrowest(hints, chosen.Nodes)
	}
	switch {
	case best.Nodes == 0 && chosen.Nodes == 0:
		return nil, errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	case best.Nodes == 0:
		return nil, errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
	case chosen.Preferred && !best.Preferred && chosen.Nodes == 0:
		return nil, errors.New("[memorymanager] failed to find the default preferred hint")
	case chosen.Preferred && !best.Preferred:
		return nil, errors.New("[memorymanager] failed to find the extended preferred hint")
	}
	return r.on(best.Nodes), nil
}

// on returns the request as blocks on these nodes.
func (r *Request) on(nodes topology.Mask) []Block {
	var blocks []Block
	for _, name := range slices.Sorted(maps.Keys(r.Wanted)) {
		blocks = append(blocks, Block{Nodes: nodes, Type: name, Size: r.Wanted[name]})
	}
	return blocks
}

// Hints returns the nodes that have what is requested, by resource. All resources have the same.
func (p *Policy) Hints(r Request) map[v1.ResourceName]topology.Hints {
	all := map[v1.ResourceName]topology.Hints{}
	if len(r.Wanted) == 0 {
		return all
	}
	hints := p.hints(r)
	for name := range r.Wanted {
		all[name] = hints
	}
	return all
}

func (p *Policy) hints(r Request) topology.Hints {
	all := p.machine.NodeMask()
	hints, least := topology.Hints{}, all.Count()
	for _, nodes := range all.Subsets() {
		total := p.total(nodes)
		if !covers(total, r.Wanted) {
			continue
		}
		least = min(least, nodes.Count())
		pod := append(slices.Clone(r.Pod), Use{Ends: r.Ends, Blocks: r.on(nodes)})
		held := append(slices.Clone(r.Others), Held(pod)...)
		if !conflicts(nodes, held) && covers(total, heldOn(nodes, held)) {
			hints = append(hints, topology.Hint{Nodes: nodes})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == least
	}
	return hints
}

// conflicts reports whether a node is in another group.
func conflicts(nodes topology.Mask, held []Block) bool {
	return slices.ContainsFunc(held, func(b Block) bool { return b.Nodes != nodes && b.Nodes&nodes != 0 })
}

// total returns what the nodes have in total.
func (p *Policy) total(nodes topology.Mask) map[v1.ResourceName]uint64 {
	sum := map[v1.ResourceName]uint64{}
	for _, id := range nodes.Nodes() {
		for name, size := range p.allocatable[id] {
			sum[name] += size
		}
	}
	return sum
}

// heldOn returns what is held on a group of nodes.
func heldOn(nodes topology.Mask, held []Block) map[v1.ResourceName]uint64 {
	sum := map[v1.ResourceName]uint64{}
	for _, b := range held {
		if b.Nodes == nodes {
			sum[b.Type] += b.Size
		}
	}
	return sum
}

func covers(have, wanted map[v1.ResourceName]uint64) bool {
	for name, size := range wanted {
		if have[name] < size {
			return false
		}
	}
	return true
}

// narrowest returns the best hint that has these nodes, and possibly more; no nodes if there is none.
func narrowest(hints topology.Hints, nodes topology.Mask) topology.Hint {
	best := topology.Hint{}
	for _, h := range hints {
		if h.Nodes&nodes == nodes && (best.Nodes == 0 || h.Nodes.Narrower(best.Nodes)) {
			best = h
		}
	}
	return best
}
