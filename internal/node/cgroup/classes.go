// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

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
	return m.requested.guaranteedMemory, m.requested.burstableMemory
}

// classRequests is what pods request: CPU in millicores, and memory in bytes.
type classRequests struct{ burstableCPU, burstableMemory, guaranteedMemory int64 }

// counted is what a pod requested when it was counted.
type counted struct {
	pod *v1.Pod
	classRequests
}

// Share gives the burstable level the CPU shares of the requests of all its pods, and the best-effort level the least. The
// levels above pods protect the memory that pods request. All of it follows every pod that is created or removed. Share makes
// up for pods that end otherwise, and for another agent's levels.
func (m *Manager) Share() error {
	if m.tree == nil {
		return nil
	}
	m.mu.Lock()
	m.counts = nil // of pods that ended without Remove
	m.mu.Unlock()
	return m.share("")
}

// share does so with the active pods, except that now is what is known of the pod uid.
func (m *Manager) share(uid types.UID, now ...*v1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := now
	if m.Active != nil {
		pods = append(slices.DeleteFunc(m.Active(), func(p *v1.Pod) bool { return p.UID == uid }), now...)
	}
	requested := m.sum(pods)
	if !m.memoryQoS.Protects() {
		requested.burstableMemory, requested.guaranteedMemory = 0, 0
	}
	if m.shared && m.requested == requested {
		return nil
	}
	all, burstable := m.memoryQoS.Classes(requested.guaranteedMemory, requested.burstableMemory)
	var errs []error
	if m.memoryQoS.Protects() {
		errs = append(errs, m.tree.create(m.parent, &runtimeapi.LinuxContainerResources{Unified: all}))
	}
	errs = append(errs,
		m.tree.create(m.level(v1.PodQOSBurstable), &runtimeapi.LinuxContainerResources{
			CpuShares: criconfig.CPUShares(requested.burstableCPU), Unified: burstable,
		}),
		m.tree.create(m.level(v1.PodQOSBestEffort), &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(0)}))
	err := errors.Join(errs...)
	m.shared, m.requested = err == nil, requested
	return err
}

// sum returns what pods request together. A pod is counted again only if it has changed, because to count all pods for each of
// many new ones takes the square of their number.
func (m *Manager) sum(pods []*v1.Pod) (sum classRequests) {
	if m.counts == nil {
		m.counts = map[types.UID]counted{}
	}
	for _, p := range pods {
		c, ok := m.counts[p.UID]
		if !ok || c.pod != p {
			c = counted{p, requestsOf(p)}
			m.counts[p.UID] = c
		}
		sum.burstableCPU += c.burstableCPU
		sum.burstableMemory += c.burstableMemory
		sum.guaranteedMemory += c.guaranteedMemory
	}
	return sum
}

func requestsOf(p *v1.Pod) (r classRequests) {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	switch qos.GetPodQOS(p) {
	case v1.PodQOSBurstable:
		r.burstableCPU, r.burstableMemory = requests.Cpu().MilliValue(), requests.Memory().Value()
	case v1.PodQOSGuaranteed:
		r.guaranteedMemory = requests.Memory().Value()
	}
	return r
}
