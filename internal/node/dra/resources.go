// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Resources returns the claims that a container uses, with all their devices, for the PodResources API. Claims
// that are not prepared have none.
func (m *Manager) Resources(pod *v1.Pod, container *v1.Container) []*podresources.DynamicResource {
	uses, err := usesOf(pod, container)
	if err != nil {
		return nil // a claim that is not created yet
	}
	var all []*podresources.DynamicResource
	seen := map[string]bool{}
	for _, u := range uses {
		c, known := m.options.Store.get(pod.Namespace + "/" + u.claim)
		if known && !seen[u.claim] {
			seen[u.claim] = true
			all = append(all, c.resources())
		}
	}
	return all
}

func (c claim) resources() *podresources.DynamicResource {
	r := &podresources.DynamicResource{ClaimName: c.Name, ClaimNamespace: c.Namespace}
	for _, driver := range slices.Sorted(maps.Keys(c.Drivers)) {
		for _, d := range c.Drivers[driver] {
			one := &podresources.ClaimResource{DriverName: driver, PoolName: d.Pool, DeviceName: d.Name, ShareId: d.Share}
			for _, id := range d.CDI {
				one.CdiDevices = append(one.CdiDevices, &podresources.CDIDevice{Name: id})
			}
			r.ClaimResources = append(r.ClaimResources, one)
		}
	}
	return r
}
