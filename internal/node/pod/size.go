// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// resizable returns the container's spec, or nil for an ephemeral container: those have no resources
// and cannot be resized.
func resizable(pod *v1.Pod, name string) *v1.Container {
	if c := containerOf(pod, name); c != nil && (isInit(pod, name) || isApp(pod, name)) {
		return c
	}
	return nil
}

func isApp(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return true
		}
	}
	return false
}

// Resized records that these runs, and the pod's cgroup, have the allocated size.
func (m *Memory) Resized(pod *v1.Pod, runs []runtime.Container) {
	for _, run := range runs {
		if c := resizable(pod, run.Name); c != nil {
			memory := m.Runs[run.ID]
			memory.Size = new(criconfig.ContainerSize(pod, c))
			m.Runs[run.ID] = memory
		}
	}
	m.Cgroup = new(criconfig.PodSize(pod))
	delete(m.Failures, OfResize)
}

// applied returns the size that a running container has: the one that the worker gave it last, else
// the one in the API's status, else the one that it was created with. If none is known, the container
// counts as having its allocated size.
func (d *decision) applied(c *v1.Container, run runtime.Container) criconfig.Size {
	want := criconfig.ContainerSize(d.Pod, c)
	if s := d.Memory.Runs[run.ID].Size; s != nil {
		return *s
	}
	s := want
	if created, ok := criconfig.ParseSize(run.Size); ok {
		s = created
	}
	return asShown(s, d.Memory.Runs[run.ID].Shown)
}

// appliedToPod returns the size that the pod's cgroup has: the one that the worker gave it last, else the one in its
// last status. An agent may have ended after it stored an allocation and before anything else showed that.
func (d *decision) appliedToPod() criconfig.Size {
	if s := d.Memory.Cgroup; s != nil {
		return *s
	}
	return asShown(criconfig.PodSize(d.Pod), d.Old.Resources)
}

// asShown returns the size with the values that a status shows, if it shows any.
func asShown(s criconfig.Size, shown *v1.ResourceRequirements) criconfig.Size {
	if shown == nil {
		return s
	}
	take := func(list v1.ResourceList, name v1.ResourceName, value *int64) {
		if quantity, ok := list[name]; ok {
			*value = criconfig.Amount(name, quantity)
		}
	}
	take(shown.Requests, v1.ResourceCPU, &s.CPURequest)
	take(shown.Requests, v1.ResourceMemory, &s.MemoryRequest)
	take(shown.Limits, v1.ResourceCPU, &s.CPULimit)
	take(shown.Limits, v1.ResourceMemory, &s.MemoryLimit)
	return s
}

// actualResources returns a container's resources for its status: the allocated ones, but CPU and
// memory as the running container has them.
func (d *decision) actualResources(c *v1.Container, run runtime.Container) *v1.ResourceRequirements {
	resources := c.Resources.DeepCopy()
	if run.State != runtime.Running || resizable(d.Pod, c.Name) == nil {
		return resources
	}
	show(resources, d.applied(c, run))
	return resources
}

// podResources sets the pod's resources in its status (KEP-5419): the requests that are allocated, and requests and limits as
// the pod's cgroup has them.
func (d *decision) podResources(s *v1.PodStatus) {
	s.AllocatedResources = resourcehelper.PodRequests(d.Pod, resourcehelper.PodResourcesOptions{})
	resources := &v1.ResourceRequirements{
		Requests: s.AllocatedResources.DeepCopy(),
		Limits:   resourcehelper.PodLimits(d.Pod, resourcehelper.PodResourcesOptions{}),
	}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !criconfig.IsLimited(d.Pod, name) {
			delete(resources.Limits, name)
		}
	}
	show(resources, d.appliedToPod())
	if len(resources.Requests)+len(resources.Limits) > 0 {
		s.Resources = resources
	}
}

// show replaces the CPU and memory in resources by what a container or a pod has. What it is not allocated, it does not show.
func show(resources *v1.ResourceRequirements, s criconfig.Size) {
	put := func(list v1.ResourceList, name v1.ResourceName, value int64) {
		allocated, ok := list[name]
		if !ok || criconfig.Amount(name, allocated) == value {
			return
		}
		if name == v1.ResourceCPU {
			list[name] = *resource.NewMilliQuantity(value, resource.DecimalSI)
			return
		}
		list[name] = *resource.NewQuantity(value, resource.BinarySI)
	}
	put(resources.Requests, v1.ResourceCPU, s.CPURequest)
	put(resources.Requests, v1.ResourceMemory, s.MemoryRequest)
	put(resources.Limits, v1.ResourceCPU, s.CPULimit)
	put(resources.Limits, v1.ResourceMemory, s.MemoryLimit)
}
