// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"math/bits"
)

// MaxNode is the highest ID of a NUMA node that a Mask can have.
const MaxNode = 63

// Mask is a set of NUMA nodes. The empty set stands for "no preference" in a Hint.
type Mask uint64

// MaskOf returns the set of these nodes.
func MaskOf(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		m = m.With(n)
	}
	return m
}

// With returns the set with another node.
func (m Mask) With(node int) Mask {
	if node < 0 || node > MaxNode {
		return m
	}
	return m | 1<<node
}

// Has reports whether the set has the node.
func (m Mask) Has(node int) bool { return node >= 0 && node <= MaxNode && m&(1<<node) != 0 }

// Count returns the number of nodes.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Nodes returns the nodes in ascending order.
func (m Mask) Nodes() []int {
	var nodes []int
	for rest := m; rest != 0; rest &= rest - 1 {
		nodes = append(nodes, bits.TrailingZeros64(uint64(rest)))
	}
	return nodes
}

// Narrower reports whether m has fewer nodes than other or, of as many, lower ones.
func (m Mask) Narrower(other Mask) bool {
	if m.Count() != other.Count() {
		return m.Count() < other.Count()
	}
	return m < other
}

// Subsets returns all subsets but the empty one.
func (m Mask) Subsets() []Mask {
	var all []Mask
	for s := m; s != 0; s = (s - 1) & m {
		all = append(all, s)
	}
	return all
}

func (m Mask) String() string { return fmt.Sprint(m.Nodes()) }
