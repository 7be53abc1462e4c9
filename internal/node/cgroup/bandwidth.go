// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// bandwidth is the CPU time in microseconds that a cgroup may use in each period. The quota is -1 for no limit, and 0 if the
// cgroup does not exist.
type bandwidth struct{ quota, period int64 }

// exceeds reports whether the bandwidth is greater than that of limits.
func (b bandwidth) exceeds(limits *runtimeapi.LinuxContainerResources) bool {
	return limits.CpuQuota > 0 && (b.quota < 0 || b.quota*limits.CpuPeriod > limits.CpuQuota*b.period)
}
