// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// Prepare returns what a container that is about to be created gets, after it has notified the plugins of its devices.
func (m *Manager) Prepare(ctx context.Context, p *v1.Pod, name string) (criconfig.Assigned, error) {
	c, _ := m.store.get(p.UID).of(name)
	a := criconfig.Assigned{}
	if m.cpus != nil {
		set := m.cpusOf(p.UID, name)
		if gone := set.Difference(m.options.Machine.All()); !gone.IsEmpty() {
			return a, fmt.Errorf("the container was assigned CPUs %s, which are offline; delete the pod", gone)
		}
		a.CPUs, a.Exclusive = set.String(), c.CPUs != ""
	}
	if m.memory != nil {
		nodes := topology.Mask(0)
		for _, b := range c.Memory {
			nodes |= b.Nodes
		}
		a.MemoryNodes = cpuset.New(nodes.Nodes()...).String()
	}
	for _, resource := range slices.Sorted(maps.Keys(c.Devices)) {
		if err := m.addDevices(ctx, &a, resource, c.Devices[resource]); err != nil {
			return a, err
		}
	}
	return a, nil
}

// cpusOf returns the CPUs that a container runs on.
func (m *Manager) cpusOf(uid types.UID, name string) cpuset.CPUSet {
	if c, _ := m.store.get(uid).of(name); c.CPUs != "" {
		return c.cpus()
	}
	return m.cpus.Shared(m.ownCPUs())
}

// addDevices adds what a plugin gives to the container. If two plugins give the same thing, the first one does.
func (m *Manager) addDevices(ctx context.Context, a *criconfig.Assigned, resource string, d devices) error {
	if err := m.options.Plugins.PreStart(ctx, resource, d.IDs); err != nil {
		return err
	}
	response, err := d.response()
	if err != nil {
		return fmt.Errorf("read what the plugin of %s allocated: %w", resource, err)
	}
	for _, key := range slices.Sorted(maps.Keys(response.Envs)) {
		if !slices.ContainsFunc(a.Env, func(e *runtimeapi.KeyValue) bool { return e.Key == key }) {
			a.Env = append(a.Env, &runtimeapi.KeyValue{Key: key, Value: []byte(response.Envs[key])})
		}
	}
	for _, mount := range response.Mounts {
		if !slices.ContainsFunc(a.Mounts, func(other *runtimeapi.Mount) bool { return other.ContainerPath == mount.ContainerPath }) {
			a.Mounts = append(a.Mounts, &runtimeapi.Mount{ContainerPath: mount.ContainerPath, HostPath: mount.HostPath, Readonly: mount.ReadOnly})
		}
	}
	for _, device := range response.Devices {
		if !slices.ContainsFunc(a.Devices, func(other *runtimeapi.Device) bool { return other.ContainerPath == device.ContainerPath }) {
			a.Devices = append(a.Devices, &runtimeapi.Device{ContainerPath: device.ContainerPath, HostPath: device.HostPath, Permissions: device.Permissions})
		}
	}
	for _, device := range response.CdiDevices {
		if !slices.ContainsFunc(a.CDIDevices, func(other *runtimeapi.CDIDevice) bool { return other.Name == device.Name }) {
			a.CDIDevices = append(a.CDIDevices, &runtimeapi.CDIDevice{Name: device.Name})
		}
	}
	for key, value := range response.Annotations {
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		if _, taken := a.Annotations[key]; !taken {
			a.Annotations[key] = value
		}
	}
	return nil
}

// Health returns the health of the devices of each container of a pod (KEP-4680). Until a plugin has registered, the
// health of its devices is unknown.
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	r := m.store.get(uid)
	if r == nil {
		return nil
	}
	all, health := m.options.Plugins.Devices(), map[string][]v1.ResourceStatus{}
	for _, c := range r.Containers {
		for _, resource := range slices.Sorted(maps.Keys(c.Devices)) {
			status := v1.ResourceStatus{Name: v1.ResourceName(resource)}
			for _, id := range c.Devices[resource].IDs {
				one := v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: v1.ResourceHealthStatusUnknown}
				if device, known := all[resource][id]; known {
					one.Health = v1.ResourceHealthStatusUnhealthy
					if device.Healthy {
						one.Health = v1.ResourceHealthStatusHealthy
					}
				}
				status.Resources = append(status.Resources, one)
			}
			health[c.Name] = append(health[c.Name], status)
		}
	}
	return health
}
