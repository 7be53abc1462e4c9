// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// use is the use of a claim's devices by a container: those of one request, or all if it is empty.
type use struct{ claim, request string }

// Devices implements pod.Claims.
func (m *Manager) Devices(pod *v1.Pod, container *v1.Container) ([]*runtimeapi.CDIDevice, error) {
	uses, err := usesOf(pod, container)
	if err != nil {
		return nil, err
	}
	var devices []*runtimeapi.CDIDevice
	seen := map[string]bool{}
	for _, u := range uses {
		c, known := m.options.Store.get(pod.Namespace + "/" + u.claim)
		if !known {
			return nil, fmt.Errorf("internal error: unable to get claim info for ResourceClaim %s in namespace %s", u.claim, pod.Namespace)
		}
		for _, id := range c.cdi(u.request) {
			if !seen[id] {
				seen[id] = true
				devices = append(devices, &runtimeapi.CDIDevice{Name: id})
			}
		}
	}
	if len(devices) > 0 && m.options.NoCDI != nil {
		return nil, m.options.NoCDI
	}
	return devices, nil
}

// usesOf returns the uses of claims by a container, in the order of the pod's claims.
func usesOf(pod *v1.Pod, container *v1.Container) ([]use, error) {
	var uses []use
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		for _, c := range container.Resources.Claims {
			if c.Name != ref.Name {
				continue
			}
			name, _, err := resourceclaim.Name(pod, ref)
			if err != nil {
				return nil, err
			}
			if name != nil {
				uses = append(uses, use{*name, c.Request})
			}
		}
	}
	return append(uses, extendedUsesOf(pod, container)...), nil
}

// extendedUsesOf returns the uses of the claim for the pod's extended resources.
func extendedUsesOf(pod *v1.Pod, container *v1.Container) []use {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return nil
	}
	var uses []use
	for _, mapping := range status.RequestMappings {
		amount := container.Resources.Requests[v1.ResourceName(mapping.ResourceName)]
		if mapping.ContainerName == container.Name && !amount.IsZero() {
			uses = append(uses, use{status.ResourceClaimName, mapping.RequestName})
		}
	}
	return uses
}

// cdi returns the CDI devices of a request.
func (c claim) cdi(request string) []string {
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(c.Drivers)) {
		for _, d := range c.Drivers[name] {
			if d.isFor(request) {
				ids = append(ids, d.CDI...)
			}
		}
	}
	return ids
}

// isFor reports whether a device is for a request.
func (d device) isFor(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, request)
}
