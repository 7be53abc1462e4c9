// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// Share gives the burstable level the CPU shares of the requests of all its pods, and the best-effort level the least. Both
// follow every pod that is created or removed. Share makes up for pods that end otherwise, and for another agent's levels.
func (m *Manager) Share() error {
	if m.tree == nil {
		return nil
	}
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
	shares := burstableShares(pods)
	if m.shared && m.shares == shares {
		return nil
	}
	err := errors.Join(
		m.tree.create(m.level(v1.PodQOSBurstable), &runtimeapi.LinuxContainerResources{CpuShares: shares}),
		m.tree.create(m.level(v1.PodQOSBestEffort), &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(0)}))
	m.shared, m.shares = err == nil, shares
	return err
}

// burstableShares returns the CPU shares of what burstable pods request.
func burstableShares(pods []*v1.Pod) int64 {
	sum := int64(0)
	for _, p := range pods {
		if qos.GetPodQOS(p) == v1.PodQOSBurstable {
			requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
			sum += requests.Cpu().MilliValue()
		}
	}
	return criconfig.CPUShares(sum)
}
