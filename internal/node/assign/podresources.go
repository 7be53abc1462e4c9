// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// Resources returns what a container has, for the PodResources API.
func (m *Manager) Resources(uid types.UID, name string) *api.ContainerResources {
	r := &api.ContainerResources{Name: name}
	c, found := m.store.get(uid).of(name)
	if !found {
		return r
	}
	if m.cpus != nil {
		r.CpuIds = ids(c.cpus())
	}
	if m.memory != nil {
		r.Memory = blocks(c.Memory)
	}
	for _, resource := range slices.Sorted(maps.Keys(c.Devices)) {
		d := c.Devices[resource]
		for _, id := range d.IDs {
			r.Devices = append(r.Devices, device(resource, id, d.Nodes[id]))
		}
	}
	return r
}

// AllocatableResources returns what containers can get, for the PodResources API.
func (m *Manager) AllocatableResources() *api.AllocatableResourcesResponse {
	r := &api.AllocatableResourcesResponse{}
	if m.cpus != nil {
		r.CpuIds = ids(m.cpus.Allocatable())
	}
	if m.memory != nil {
		r.Memory = blocks(m.memory.Allocatable())
	}
	all := m.options.Plugins.Devices()
	for _, resource := range slices.Sorted(maps.Keys(all)) {
		for _, id := range slices.Sorted(maps.Keys(all[resource])) {
			if d := all[resource][id]; d.Healthy {
				r.Devices = append(r.Devices, device(resource, id, d.Nodes))
			}
		}
	}
	return r
}

func ids(set cpuset.CPUSet) []int64 {
	var all []int64
	for _, id := range set.List() {
		all = append(all, int64(id))
	}
	return all
}

func blocks(list []memory.Block) []*api.ContainerMemory {
	var all []*api.ContainerMemory
	for _, b := range list {
		all = append(all, &api.ContainerMemory{MemoryType: string(b.Type), Size: b.Size, Topology: on(b.Nodes)})
	}
	return all
}

func device(resource, id string, nodes topology.Mask) *api.ContainerDevices {
	d := &api.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}}
	if nodes != 0 {
		d.Topology = on(nodes)
	}
	return d
}

func on(nodes topology.Mask) *api.TopologyInfo {
	info := &api.TopologyInfo{}
	for _, id := range nodes.Nodes() {
		info.Nodes = append(info.Nodes, &api.NUMANode{ID: int64(id)})
	}
	return info
}
