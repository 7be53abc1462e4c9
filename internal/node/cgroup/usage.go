// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// Usage is what the processes of a cgroup use.
type Usage struct {
	// CPU is the CPU time consumed since the cgroup was created.
	CPU time.Duration
	// Memory is the working set in bytes: the usage without inactive file pages.
	Memory uint64
}

// ErrNone reports that pods have no cgroups of their own.
var ErrNone = errors.New("there are no pod-level cgroups")

// Usage returns what a pod uses.
func (m *Manager) Usage(p *v1.Pod) (Usage, error) {
	s, err := m.Sample(m.Path(p))
	return s.Usage, err
}

// Memory implements pod.Cgroups.
func (m *Manager) Memory(p *v1.Pod) (used uint64, limit int64, err error) {
	if m.tree == nil {
		return 0, 0, nil
	}
	path := m.Path(p)
	if _, limit = m.tree.limits(path); limit == 0 {
		return 0, 0, nil // there is no cgroup yet
	}
	used, err = m.tree.memoryUsage(path)
	return used, limit, err
}

// PodsMemory returns the working set of all pods together and the limit that LimitPods has set.
func (m *Manager) PodsMemory() (used, limit int64, err error) {
	if m.tree == nil {
		return 0, 0, ErrNone
	}
	_, limit = m.tree.limits(m.parent)
	if limit <= 0 {
		return 0, 0, fmt.Errorf("the memory of pods is not limited in cgroup %s", m.parent)
	}
	sample, err := m.tree.sample(m.parent)
	return int64(sample.Usage.Memory), limit, err
}

// LimitPods limits the memory, and the processes and threads, of all pods together, and gives them CPU shares. limited is
// false if pods have no cgroups. The kernel may refuse a memory limit below what pods use.
func (m *Manager) LimitPods(cpuMilli, memory, pids int64) (limited bool, err error) {
	if m.tree == nil {
		return false, nil
	}
	err = m.tree.create(m.parent, &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(cpuMilli), MemoryLimitInBytes: memory})
	return true, errors.Join(err, m.tree.limitPIDs(m.parent, pids))
}

// MachineUsage returns what all processes of the machine use.
func MachineUsage() (Usage, error) { return machineUsageIn("/sys/fs/cgroup") }

func machineUsageIn(root string) (Usage, error) {
	s, err := machineSampleIn(root)
	return s.Usage, err
}

// workingSet returns the usage without inactive file pages. The two are not read at the same moment, so
// that the difference could be negative.
func workingSet(total, inactive uint64) uint64 {
	if inactive > total {
		return 0
	}
	return total - inactive
}

func number(dir, file string) (uint64, error) {
	text, err := read(dir, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}
