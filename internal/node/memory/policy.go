// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// Block is an amount of memory or of huge pages on a group of NUMA nodes.
type Block struct {
	Nodes topology.Mask   `json:"nodes"`
	Type  v1.ResourceName `json:"type"`
	Size  uint64          `json:"size"` // bytes
}

// Policy is the Static policy on a machine.
type Policy struct {
	machine     *topology.Machine
	allocatable map[int]map[v1.ResourceName]uint64 // by node
}

// CheckPolicy returns what is wrong with memoryManagerPolicy, or nil.
func CheckPolicy(policy string) error {
	switch policy {
	case kubeletv1beta1.NoneMemoryManagerPolicy, kubeletv1beta1.StaticMemoryManagerPolicy:
		return nil
	}
	return fmt.Errorf("memoryManagerPolicy is %q, and must be None or Static", policy)
}

// New returns the Static policy. reserved (reservedMemory) must reserve on all nodes together what the node reserves
// in total: kubeReserved, systemReserved and the hard eviction threshold.
func New(machine *topology.Machine, reserved []kubeletv1beta1.MemoryReservation, total v1.ResourceList) (*Policy, error) {
	p := &Policy{machine: machine, allocatable: map[int]map[v1.ResourceName]uint64{}}
	for _, n := range machine.Nodes {
		amounts := map[v1.ResourceName]uint64{v1.ResourceMemory: n.Memory}
		for name, size := range n.HugePages {
			amounts[v1.ResourceName(name)] = size
			amounts[v1.ResourceMemory] -= min(size, amounts[v1.ResourceMemory])
		}
		p.allocatable[n.ID] = amounts
	}
	sums := v1.ResourceList{}
	for _, r := range reserved {
		amounts, exists := p.allocatable[int(r.NumaNode)]
		if !exists {
			return nil, fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on this machine", r.NumaNode)
		}
		for name, q := range r.Limits {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
			amounts[name] -= min(uint64(max(q.Value(), 0)), amounts[name])
		}
	}
	return p, checkReserved(sums, total)
}

// checkReserved returns why what nodes reserve is not what the whole machine reserves, or nil.
func checkReserved(sums, total v1.ResourceList) error {
	if memory := sums[v1.ResourceMemory]; memory.Sign() <= 0 {
		return errors.New("memoryManagerPolicy Static requires memory to be reserved: set reservedMemory to the sum of kubeReserved, systemReserved and the hard eviction threshold")
	}
	names := map[v1.ResourceName]bool{}
	for name := range sums {
		names[name] = true
	}
	for name := range total {
		names[name] = names[name] || isMemory(name)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		sum, want := sums[name], total[name]
		if names[name] && sum.Cmp(want) != 0 {
			return fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature", sum.String(), name, want.String())
		}
	}
	return nil
}

// isMemory reports whether the policy handles a resource.
func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// Requested returns how much memory and huge pages of chosen nodes a container is to have: what it requests, if its
// pod is Guaranteed and has no resources of its own (KEP-2837).
func Requested(pod *v1.Pod, c *v1.Container) map[v1.ResourceName]uint64 {
	wanted := map[v1.ResourceName]uint64{}
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 || qos.GetPodQOS(pod) != v1.PodQOSGuaranteed {
		return wanted
	}
	for name, q := range c.Resources.Requests {
		if isMemory(name) && q.Sign() > 0 {
			wanted[name] = uint64(q.Value())
		}
	}
	return wanted
}

// Allocatable returns what containers can get, by node.
func (p *Policy) Allocatable() []Block {
	var blocks []Block
	for _, n := range p.machine.Nodes {
		for _, name := range slices.Sorted(maps.Keys(p.allocatable[n.ID])) {
			if size := p.allocatable[n.ID][name]; size > 0 {
				blocks = append(blocks, Block{Nodes: topology.MaskOf(n.ID), Type: name, Size: size})
			}
		}
	}
	return blocks
}
