// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
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
