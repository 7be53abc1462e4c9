// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"time"

	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// Observer counts assignments. Each error is why a container, or a pod, does not get what it asks for.
type Observer interface {
	CPUsPinned(err error)
	MemoryPinned(err error)
	PodAligned(took time.Duration, err error)
	// Aligned counts containers, or pods, whose resources are within a boundary, and NotAligned those that are refused because
	// theirs cannot be. A count of 0 shows that the boundary is watched.
	Aligned(scope, boundary string, count int)
	NotAligned(scope, boundary string, count int)
}

// The boundaries in metrics.
const (
	coreBoundary  = "physical_cpu"
	nodeBoundary  = "numa_node"
	cacheBoundary = "uncore_cache"
)

// observeBoundaries shows the boundaries that the policies watch.
func (m *Manager) observeBoundaries() {
	o := m.options.Observer
	if o == nil {
		return
	}
	if m.policy.Name != topology.None {
		for _, scope := range []string{topology.ContainerScope, topology.PodScope} {
			o.Aligned(scope, nodeBoundary, 0)
			o.NotAligned(scope, nodeBoundary, 0)
		}
	}
	if m.cpus != nil {
		o.Aligned(topology.ContainerScope, coreBoundary, 0)
		o.NotAligned(topology.ContainerScope, coreBoundary, 0)
		o.Aligned(topology.ContainerScope, cacheBoundary, 0)
	}
}

// observeHint counts a container, or a pod, that the topology policy refuses. Only one policy guarantees a boundary.
func (m *Manager) observeHint(err error) {
	if o := m.options.Observer; o != nil && err != nil && m.policy.Name == topology.SingleNUMANode {
		o.NotAligned(m.policy.Scope, nodeBoundary, 1)
	}
}

// observeAligned counts a container or a pod, depending on the scope of the topology policy, that has got its resources.
func (m *Manager) observeAligned(scope string) {
	if o := m.options.Observer; o != nil && scope == m.policy.Scope && m.policy.Name == topology.SingleNUMANode {
		o.Aligned(scope, nodeBoundary, 1)
	}
}

// observeCPUs counts a container that gets CPUs of its own, or why it does not.
func (m *Manager) observeCPUs(set cpuset.CPUSet, err error) {
	o := m.options.Observer
	if o == nil {
		return
	}
	o.CPUsPinned(err)
	count := o.Aligned
	if err != nil {
		count = o.NotAligned
	}
	if m.cpus.FullCores() {
		count(topology.ContainerScope, coreBoundary, 1)
	}
	if err == nil && m.options.Machine.ShareCache(set) {
		o.Aligned(topology.ContainerScope, cacheBoundary, 1)
	}
}

// observeMemory counts a container that gets memory of chosen nodes, or why it does not.
func (m *Manager) observeMemory(err error) {
	if m.options.Observer != nil {
		m.options.Observer.MemoryPinned(err)
	}
}
