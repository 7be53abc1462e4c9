// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// ProtectMemory has pods protected and throttled by q. It must be called before the first pod. What an earlier agent protected
// above pods is not protected any more, unless q protects it.
func (m *Manager) ProtectMemory(q criconfig.MemoryQoS) error {
	m.memoryQoS = q
	if m.tree == nil || !q.Unified || q.Protects() {
		return nil
	}
	pods, burstable := q.Classes(0, 0)
	err := m.tree.create(m.parent, &runtimeapi.LinuxContainerResources{Unified: pods})
	level := m.level(v1.PodQOSBurstable)
	if _, missing := os.Stat(m.tree.memoryDir(level)); missing != nil {
		return err
	}
	return errors.Join(err, m.tree.create(level, &runtimeapi.LinuxContainerResources{Unified: burstable}))
}

// Protected returns how many bytes of memory are protected: of Guaranteed pods, which the kernel never reclaims, and of
// Burstable pods, which it reclaims last.
func (m *Manager) Protected() (never, last int64) {
	if !m.memoryQoS.Protects() {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum(v1.PodQOSGuaranteed).memory, m.sum(v1.PodQOSBurstable).memory
}

// account records what a pod requests; nothing if it is gone. The cgroup of Burstable pods gets the CPU shares of the sum of
// their requests, and the cgroups above pods protect the memory that pods request.
func (m *Manager) account(uid types.UID, r podRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.requests[uid]
	if before == r {
		return nil
	}
	delete(m.requests, uid)
	if r != (podRequest{}) {
		m.requests[uid] = r
	}
	burstable := m.sum(v1.PodQOSBurstable)
	allSettings, settings := m.memoryQoS.Classes(m.sum(v1.PodQOSGuaranteed).memory, burstable.memory)
	var errs []error
	if m.memoryQoS.Protects() {
		errs = append(errs, m.tree.create(m.parent, &runtimeapi.LinuxContainerResources{Unified: allSettings}))
	}
	if before.class == v1.PodQOSBurstable || r.class == v1.PodQOSBurstable {
		errs = append(errs, m.tree.create(m.level(v1.PodQOSBurstable), &runtimeapi.LinuxContainerResources{
			CpuShares: criconfig.CPUShares(burstable.cpu), Unified: settings,
		}))
	}
	return errors.Join(errs...)
}

// sum returns what the pods of a class request together. The caller holds the lock.
func (m *Manager) sum(class v1.PodQOSClass) podRequest {
	sum := podRequest{class: class}
	for _, r := range m.requests {
		if r.class == class {
			sum.cpu, sum.memory = sum.cpu+r.cpu, sum.memory+r.memory
		}
	}
	return sum
}
