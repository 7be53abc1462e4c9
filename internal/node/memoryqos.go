// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kindred-project/kindred/internal/node/cgroup"
	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// protectMemory sets up how the memory of pods is protected and throttled, and what huge pages they are limited to.
func (a *Agent) protectMemory() {
	c := &a.options.Config.KubeletConfiguration
	a.memoryQoS = criconfig.MemoryQoS{
		Unified: cgroup.IsV2(), Enabled: config.MemoryQoS(c), PageSize: int64(os.Getpagesize()),
		Reserve:     c.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy,
		Allocatable: a.allocatableMemory,
	}
	if c.MemoryThrottlingFactor != nil {
		a.memoryQoS.Factor = *c.MemoryThrottlingFactor
	}
	a.cgroups.PageSizes = a.limitedPageSizes()
	if err := a.cgroups.ProtectMemory(a.memoryQoS); err != nil {
		klog.Background().Error(err, "Cannot reset the memory that an earlier agent protected")
	}
}

// allocatableMemory returns the node's allocatable memory; 0 if it is unknown.
func (a *Agent) allocatableMemory() int64 {
	node := a.registration.current()
	if node == nil {
		return 0
	}
	memory := node.Status.Allocatable[v1.ResourceMemory]
	return memory.Value()
}
