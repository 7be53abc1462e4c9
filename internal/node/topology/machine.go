// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"maps"
	"slices"

	"k8s.io/utils/cpuset"
)

// CPU is a logical CPU. Core and Cache are the lowest CPU of those that share the core or the last-level cache.
type CPU struct {
	ID, Core, Cache, Socket, Node int
}

// Node is a NUMA node.
type Node struct {
	ID     int
	Memory uint64 // bytes, with the memory in huge pages
	// HugePages are the bytes in pre-allocated huge pages, by resource name (hugepages-2Mi).
	HugePages map[string]uint64
	// Distances are those to all nodes, by their position in Machine.Nodes.
	Distances []int
}

// Machine has the CPUs that are online and the NUMA nodes, both sorted by ID.
type Machine struct {
	CPUs  []CPU
	Nodes []Node
}

// All returns all CPUs.
func (m *Machine) All() cpuset.CPUSet { return m.Select(func(CPU) bool { return true }) }

// Select returns the CPUs that match.
func (m *Machine) Select(match func(CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range m.CPUs {
		if match(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// OnNodes returns the CPUs of NUMA nodes.
func (m *Machine) OnNodes(nodes Mask) cpuset.CPUSet {
	return m.Select(func(c CPU) bool { return nodes.Has(c.Node) })
}

// SameCores returns all CPUs of the cores of which set has a CPU.
func (m *Machine) SameCores(set cpuset.CPUSet) cpuset.CPUSet {
	cores := map[int]bool{}
	for _, c := range m.CPUs {
		if set.Contains(c.ID) {
			cores[c.Core] = true
		}
	}
	return m.Select(func(c CPU) bool { return cores[c.Core] })
}

// ShareCache reports whether all CPUs of set share a last-level cache.
func (m *Machine) ShareCache(set cpuset.CPUSet) bool {
	caches := map[int]bool{}
	for _, c := range m.CPUs {
		if set.Contains(c.ID) {
			caches[c.Cache] = true
		}
	}
	return len(caches) == 1
}

// CPUsPerCore returns the number of CPUs of a core.
func (m *Machine) CPUsPerCore() int {
	cores := m.Cores()
	if cores == 0 {
		return 0
	}
	return len(m.CPUs) / cores
}

// Cores returns the number of physical cores.
func (m *Machine) Cores() int { return m.count(func(c CPU) int { return c.Core }) }

// Sockets returns the number of sockets.
func (m *Machine) Sockets() int { return m.count(func(c CPU) int { return c.Socket }) }

func (m *Machine) count(unit func(CPU) int) int {
	seen := map[int]bool{}
	for _, c := range m.CPUs {
		seen[unit(c)] = true
	}
	return len(seen)
}

// NodeMask returns all NUMA nodes.
func (m *Machine) NodeMask() Mask {
	var all Mask
	for _, n := range m.Nodes {
		all = all.With(n.ID)
	}
	return all
}

// distance returns the average distance between nodes.
func (m *Machine) distance(nodes Mask) float64 {
	sum := 0
	for _, n := range m.Nodes {
		for i, distance := range n.Distances {
			if nodes.Has(n.ID) && i < len(m.Nodes) && nodes.Has(m.Nodes[i].ID) {
				sum += distance
			}
		}
	}
	return float64(sum) / float64(max(nodes.Count()*nodes.Count(), 1))
}

func (m *Machine) sort() {
	slices.SortFunc(m.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
}

// HugePageNames returns the resource names of the machine's huge pages.
func (m *Machine) HugePageNames() []string {
	names := map[string]bool{}
	for _, n := range m.Nodes {
		for name := range n.HugePages {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
