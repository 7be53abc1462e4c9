// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// size is the part of a container's or a pod's resources that can change while it runs: CPU in
// thousandths, memory in bytes, 0 for none.
type size struct {
	CPURequest    int64 `json:"cpuRequest,omitempty"`
	CPULimit      int64 `json:"cpuLimit,omitempty"`
	MemoryRequest int64 `json:"memoryRequest,omitempty"`
	MemoryLimit   int64 `json:"memoryLimit,omitempty"`
}

func sizeOf(requests, limits v1.ResourceList) size {
	return size{
		CPURequest: requests.Cpu().MilliValue(), CPULimit: limits.Cpu().MilliValue(),
		MemoryRequest: requests.Memory().Value(), MemoryLimit: limits.Memory().Value(),
	}
}

// containerSize is a container's size. A limit of the pod stands in for one it does not have.
func containerSize(pod *v1.Pod, c *v1.Container) size {
	s := sizeOf(c.Resources.Requests, c.Resources.Limits)
	cpu, memory := limitOf(pod, c, v1.ResourceCPU), limitOf(pod, c, v1.ResourceMemory)
	s.CPULimit, s.MemoryLimit = cpu.MilliValue(), memory.Value()
	return s
}

// podSize is the size of a pod's cgroup.
func podSize(pod *v1.Pod) size {
	return sizeOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}),
		resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}))
}

// text is how a size is kept with its container.
func (s size) text() string {
	data, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(data)
}

// resizable says whether a container can be resized: all but ephemeral ones, which have no resources.
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

// Resized notes that these runs have the size that is allocated.
func (m *Memory) Resized(pod *v1.Pod, runs []runtime.Container) {
	for _, run := range runs {
		if c := resizable(pod, run.Name); c != nil {
			memory := m.Runs[run.ID]
			memory.Size = ptrTo(containerSize(pod, c))
			m.Runs[run.ID] = memory
		}
	}
	m.Cgroup = ptrTo(podSize(pod))
	delete(m.Failures, resizeFailure)
}

// applied is the size that a running container was last given: since the worker gave it, else
// as the API's status shows it, else as it was created. Where nothing is known, it is right.
func (d *decision) applied(c *v1.Container, run runtime.Container) size {
	want := containerSize(d.Pod, c)
	if s := d.Memory.Runs[run.ID].Size; s != nil {
		return *s
	}
	s := want
	if run.Size != "" {
		created := size{}
		if json.Unmarshal([]byte(run.Size), &created) == nil {
			s = created
		}
	}
	shown := d.Memory.Runs[run.ID].Shown
	if shown == nil {
		return s
	}
	known := func(list v1.ResourceList, name v1.ResourceName, value *int64) {
		if quantity, ok := list[name]; ok {
			*value = amountOf(name, quantity)
		}
	}
	known(shown.Requests, v1.ResourceCPU, &s.CPURequest)
	known(shown.Requests, v1.ResourceMemory, &s.MemoryRequest)
	known(shown.Limits, v1.ResourceCPU, &s.CPULimit)
	known(shown.Limits, v1.ResourceMemory, &s.MemoryLimit)
	return s
}

func amountOf(name v1.ResourceName, quantity resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// actual are a container's resources for its status: the allocated ones, but CPU and memory as
// the running container was given them.
func (d *decision) actual(c *v1.Container, run runtime.Container) *v1.ResourceRequirements {
	resources := c.Resources.DeepCopy()
	if run.State != runtime.Running || resizable(d.Pod, c.Name) == nil {
		return resources
	}
	s := d.applied(c, run)
	put := func(list v1.ResourceList, name v1.ResourceName, value int64) {
		allocated, ok := list[name]
		if !ok || amountOf(name, allocated) == value {
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
	return resources
}
