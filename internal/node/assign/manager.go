// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/qos"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/clock"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/cpus"
	"github.com/kindred-project/kindred/internal/node/deviceplugin"
	"github.com/kindred-project/kindred/internal/node/memory"
	"github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// Options are what a Manager depends on.
type Options struct {
	Dir     string // of the records
	Config  *config.Configuration
	Machine *topology.Machine
	// Reserved is what of the machine is not allocatable to pods.
	Reserved v1.ResourceList
	Plugins  *deviceplugin.Manager
	Runtime  *runtime.Runtime
	Clock    clock.WithTicker
	// Wake has the pod's worker decide again: the health of its devices has changed.
	Wake func(types.UID)
	// Observer counts assignments, if set.
	Observer Observer
}

// Manager assigns CPUs, memory and devices. All methods are safe for concurrent use.
type Manager struct {
	options Options
	cpus    *cpus.Policy   // nil for the policy none
	memory  *memory.Policy // nil for the policy None
	policy  *topology.Policy
	store   *store
	changed chan struct{} // the CPUs of containers may have changed

	assigning sync.Mutex // one pod at a time
}

// New returns a Manager that knows what earlier agents assigned. It fails if the machine does not allow the policies
// of the configuration.
func New(o Options) (*Manager, error) {
	m := &Manager{options: o, changed: make(chan struct{}, 1)}
	var err error
	if m.store, err = open(o.Dir); err != nil {
		return nil, err
	}
	if m.policy, err = topology.ParsePolicy(o.Config.TopologyManagerPolicy, o.Config.TopologyManagerScope, o.Config.TopologyManagerPolicyOptions); err != nil {
		return nil, err
	}
	if m.policy, err = m.policy.On(o.Machine); err != nil {
		return nil, err
	}
	if err := m.setCPUPolicy(); err != nil {
		return nil, err
	}
	if o.Config.MemoryManagerPolicy == kubeletv1beta1.StaticMemoryManagerPolicy {
		if m.memory, err = memory.New(o.Machine, o.Config.ReservedMemory, o.Reserved); err != nil {
			return nil, err
		}
	}
	m.observeBoundaries()
	return m, nil
}

// setCPUPolicy makes the policy of CPUs. A file marks that containers may be restricted to some CPUs, until Run has
// lifted that.
func (m *Manager) setCPUPolicy() error {
	o := m.options
	if o.Config.CPUManagerPolicy != cpus.Static {
		return nil
	}
	options, err := cpus.ParseOptions(o.Config.CPUManagerPolicy, o.Config.CPUManagerPolicyOptions)
	if err != nil {
		return err
	}
	reserved, err := cpuset.Parse(o.Config.ReservedSystemCPUs)
	if err != nil {
		return fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	count := o.Reserved.Cpu().MilliValue()
	if m.cpus, err = cpus.New(o.Machine, options, reserved, int((count+999)/1000)); err != nil {
		return err
	}
	if err := os.WriteFile(m.marker(), nil, 0o600); err != nil {
		return fmt.Errorf("mark that containers are restricted to CPUs: %w", err)
	}
	return nil
}

func (m *Manager) marker() string { return filepath.Join(m.options.Dir, "restricted") }

// Has reports whether the pod has something that Release would free.
func (m *Manager) Has(uid types.UID) bool { return m.store.get(uid) != nil }

// HasCPUs reports whether a container of the pod has CPUs of its own, so that the pod is not limited otherwise.
func (m *Manager) HasCPUs(uid types.UID) bool {
	r := m.store.get(uid)
	return m.cpus != nil && r != nil && !r.cpus().IsEmpty()
}

// Exclusive reports whether a container has CPUs of its own.
func (m *Manager) Exclusive(uid types.UID, name string) bool {
	c, _ := m.store.get(uid).of(name)
	return m.cpus != nil && c.CPUs != ""
}

// Release frees what a pod has whose containers have ended.
func (m *Manager) Release(uid types.UID) error {
	r := m.store.get(uid)
	if r == nil {
		return nil
	}
	if err := m.store.remove(uid); err != nil {
		return err
	}
	m.check()
	return nil
}

// RemoveOrphans releases what all pods have but those to keep.
func (m *Manager) RemoveOrphans(_ context.Context, keep func(types.UID) bool) error {
	var failures []error
	for uid := range m.store.all() {
		if !keep(uid) {
			failures = append(failures, m.Release(uid))
		}
	}
	return errors.Join(failures...)
}

// DevicesChanged wakes the workers of pods that have one of these devices.
func (m *Manager) DevicesChanged(resource string, ids []string) {
	for uid, r := range m.store.all() {
		if all, _ := r.devices(resource); all.HasAny(ids...) {
			m.options.Wake(uid)
		}
	}
}

// CPUs returns how many CPUs containers share, and how many they have of their own; 0 without the policy static.
func (m *Manager) CPUs() (shared, exclusive int) {
	if m.cpus == nil {
		return 0, 0
	}
	used := m.ownCPUs()
	return m.cpus.Shared(used).Size(), used.Size()
}

// CPUsOfNodes returns how many CPUs of each NUMA node containers have of their own; nil without the policy static.
func (m *Manager) CPUsOfNodes() map[int]int {
	if m.cpus == nil {
		return nil
	}
	used, counts := m.ownCPUs(), map[int]int{}
	for _, n := range m.options.Machine.Nodes {
		counts[n.ID] = m.options.Machine.OnNodes(topology.MaskOf(n.ID)).Intersection(used).Size()
	}
	return counts
}

// ownCPUs returns the CPUs that containers have of their own.
func (m *Manager) ownCPUs() cpuset.CPUSet {
	used := cpuset.New()
	for _, r := range m.store.all() {
		used = used.Union(r.cpus())
	}
	return used
}

// CheckResize returns why a pod can never be resized in place, or nil: what it is assigned does not change while it runs.
func (m *Manager) CheckResize(desired, allocated *v1.Pod) *pod.Refusal {
	if qos.GetPodQOS(desired) != v1.PodQOSGuaranteed {
		return nil
	}
	for _, r := range []struct {
		name              v1.ResourceName
		isStatic          bool
		of, value, detail string
	}{
		{v1.ResourceCPU, m.cpus != nil, "CPU", cpus.Static, "guaranteed_pod_cpu_manager_static_policy"},
		{v1.ResourceMemory, m.memory != nil, "Memory", kubeletv1beta1.StaticMemoryManagerPolicy, "guaranteed_pod_memory_manager_static_policy"},
	} {
		if r.isStatic && differs(allocated, desired, r.name) {
			return &pod.Refusal{Reason: v1.PodReasonInfeasible, Message: fmt.Sprintf(
				"Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q", r.of, r.value), Detail: r.detail}
		}
	}
	return nil
}

// differs reports whether a container of two versions of a pod requests another amount.
func differs(a, b *v1.Pod, name v1.ResourceName) bool {
	amounts := func(p *v1.Pod) map[string]resource.Quantity {
		all := map[string]resource.Quantity{}
		for _, c := range inOrder(p) {
			all[c.Name] = c.Resources.Requests[name]
		}
		return all
	}
	before := amounts(a)
	for container, amount := range amounts(b) {
		if was := before[container]; was.Cmp(amount) != 0 {
			return true
		}
	}
	return false
}

// Allocatable returns the node with at least as many devices as its containers have: devices that became unhealthy
// count, and the Node in the API may be older.
func (m *Manager) Allocatable(node *v1.Node) *v1.Node {
	changed := false
	for _, r := range m.store.all() {
		for _, c := range r.Containers {
			changed = changed || len(c.Devices) > 0
		}
	}
	if !changed {
		return node
	}
	node = node.DeepCopy()
	for name := range m.options.Plugins.Counts() {
		used := 0
		for _, r := range m.store.all() {
			all, _ := r.devices(name)
			used += all.Len()
		}
		have := node.Status.Allocatable[v1.ResourceName(name)]
		if have.Value() < int64(used) {
			node.Status.Allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(used), resource.DecimalSI)
		}
	}
	return node
}
