// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// unit returns the number of the unit (core, cache, NUMA node, socket) that a CPU belongs to.
type unit func(topology.CPU) int

func core(c topology.CPU) int   { return c.Core }
func cache(c topology.CPU) int  { return c.Cache }
func node(c topology.CPU) int   { return c.Node }
func socket(c topology.CPU) int { return c.Socket }

// take chooses n of the free CPUs, as close to each other as it can, or as the options say.
func (p *Policy) take(free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	if free.Size() < n {
		return cpuset.CPUSet{}, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, free.Size())
	}
	if p.options.DistributeAcrossNUMA {
		return p.takeDistributed(free, n), nil
	}
	return p.takePacked(free, n), nil
}

// picker chooses CPUs.
type picker struct {
	machine *topology.Machine
	free    cpuset.CPUSet
	taken   cpuset.CPUSet
	need    int
}

// takePacked takes whole NUMA nodes and sockets, then whole caches if the options say so, then whole cores, then
// single CPUs, each where the least is free, so that large free units remain for others.
func (p *Policy) takePacked(free cpuset.CPUSet, n int) cpuset.CPUSet {
	k := &picker{machine: p.machine, free: free, need: n}
	outer, inner := unit(node), unit(socket)
	if p.machine.Sockets() < len(p.machine.Nodes) {
		outer, inner = socket, node
	}
	k.takeWhole(outer, outer, inner)
	k.takeWhole(inner, outer, inner)
	if p.options.PreferUncoreCache {
		k.takeWhole(cache, outer, inner)
		k.stayInCache()
	}
	k.takeWhole(core, outer, inner)
	k.takeWhole(func(c topology.CPU) int { return c.ID }, outer, inner)
	return k.taken
}

// takeWhole takes units that are free as a whole, and that are not larger than what is needed.
func (k *picker) takeWhole(of, outer, inner unit) {
	seen := map[int]bool{}
	for _, c := range k.order(outer, inner) {
		if seen[of(c)] || k.need == 0 {
			continue
		}
		seen[of(c)] = true
		all := k.machine.Select(func(other topology.CPU) bool { return of(other) == of(c) })
		if all.Size() <= k.need && all.IsSubsetOf(k.free) {
			k.take(all)
		}
	}
}

func (k *picker) take(set cpuset.CPUSet) {
	k.taken, k.free = k.taken.Union(set), k.free.Difference(set)
	k.need -= set.Size()
}

// stayInCache leaves only one cache to choose from: the one with the fewest free CPUs that are enough. If none has
// enough, all stay.
func (k *picker) stayInCache() {
	if k.need == 0 {
		return
	}
	counts := k.count(cache)
	best, found := 0, false
	for _, c := range k.machine.CPUs {
		if n := counts[c.Cache]; n >= k.need && (!found || n < counts[best]) {
			best, found = c.Cache, true
		}
	}
	if found {
		k.free = k.free.Intersection(k.machine.Select(func(c topology.CPU) bool { return c.Cache == best }))
	}
}

// order returns the free CPUs in the order in which they are taken.
func (k *picker) order(outer, inner unit) []topology.CPU {
	var order []topology.CPU
	for _, c := range k.machine.CPUs {
		if k.free.Contains(c.ID) {
			order = append(order, c)
		}
	}
	levels := []unit{outer, inner, core}
	counts := make([]map[int]int, len(levels))
	for i, of := range levels {
		counts[i] = k.count(of)
	}
	slices.SortFunc(order, func(a, b topology.CPU) int {
		for i, of := range levels {
			if c := cmp.Or(cmp.Compare(counts[i][of(a)], counts[i][of(b)]), cmp.Compare(of(a), of(b))); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return order
}

// count returns the number of free CPUs of each unit.
func (k *picker) count(of unit) map[int]int {
	counts := map[int]int{}
	for _, c := range k.machine.CPUs {
		if k.free.Contains(c.ID) {
			counts[of(c)]++
		}
	}
	return counts
}

// takeDistributed takes as many CPUs of each NUMA node, of as few nodes as possible. The nodes are chosen such that
// what remains free differs least between nodes.
func (p *Policy) takeDistributed(free cpuset.CPUSet, n int) cpuset.CPUSet {
	group := 1
	if p.options.FullPCPUsOnly {
		group = p.machine.CPUsPerCore()
	}
	room := map[int]int{} // free CPUs by node
	for _, nd := range p.machine.Nodes {
		room[nd.ID] = free.Intersection(p.machine.OnNodes(topology.MaskOf(nd.ID))).Size()
	}
	var best map[int]int
	fewest, imbalance := len(room)+1, 0
	for _, nodes := range p.machine.NodeMask().Subsets() {
		shares, ok := shareOut(nodes, room, n, group)
		if !ok || nodes.Count() > fewest {
			continue
		}
		if rest := imbalanceAfter(room, shares); nodes.Count() < fewest || rest <= imbalance {
			best, fewest, imbalance = shares, nodes.Count(), rest
		}
	}
	if best == nil {
		return p.takePacked(free, n)
	}
	taken := cpuset.New()
	for nodeID, share := range best {
		taken = taken.Union(p.takePacked(free.Intersection(p.machine.OnNodes(topology.MaskOf(nodeID))), share))
	}
	return taken
}

// shareOut divides n CPUs among nodes, in groups: as many for each, and what is left over for those with the most
// room. It fails if a node does not have room for its share.
func shareOut(nodes topology.Mask, room map[int]int, n, group int) (shares map[int]int, ok bool) {
	each := n / nodes.Count() / group * group
	shares = map[int]int{}
	for _, id := range nodes.Nodes() {
		if room[id] < each {
			return nil, false
		}
		shares[id] = each
	}
	for rest := n - each*nodes.Count(); rest > 0; rest -= group {
		most := -1
		for _, id := range nodes.Nodes() {
			if left := room[id] - shares[id]; left >= group && (most < 0 || left > room[most]-shares[most]) {
				most = id
			}
		}
		if most < 0 || rest < group {
			return nil, false
		}
		shares[most] += group
	}
	return shares, true
}

// imbalanceAfter is the variance of the CPUs that remain free on each node, times the square of the number of nodes.
func imbalanceAfter(room, shares map[int]int) int {
	sum, squares := 0, 0
	for id, free := range room {
		left := free - shares[id]
		sum += left
		squares += left * left
	}
	return squares*len(room) - sum*sum
}
