// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

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
	if m.tree == nil {
		return Usage{}, ErrNone
	}
	return m.tree.usage(m.path(qos.GetPodQOS(p), p.UID))
}

// Processes returns the number of processes and threads of a pod.
func (m *Manager) Processes(p *v1.Pod) (int64, error) {
	if m.tree == nil {
		return 0, ErrNone
	}
	return m.tree.processes(m.path(qos.GetPodQOS(p), p.UID))
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
	usage, err := m.tree.usage(m.parent)
	return int64(usage.Memory), limit, err
}

// LimitPods limits the memory of all pods together, and gives them CPU shares. limited is false if pods have no cgroups.
// The kernel may refuse a memory limit below what pods use.
func (m *Manager) LimitPods(cpuMilli, memory int64) (limited bool, err error) {
	if m.tree == nil {
		return false, nil
	}
	return true, m.tree.create(m.parent, &runtimeapi.LinuxContainerResources{CpuShares: criconfig.CPUShares(cpuMilli), MemoryLimitInBytes: memory})
}

// MachineUsage returns what all processes of the machine use.
func MachineUsage() (Usage, error) { return machineUsageIn("/sys/fs/cgroup") }

func machineUsageIn(root string) (Usage, error) {
	for _, tree := range []hierarchy{detectV2(root), detectV1(root)} {
		if tree != nil {
			return tree.usage("/")
		}
	}
	return Usage{}, fmt.Errorf("%s has no cgroups with CPU and memory", root)
}

func (t version2) usage(path string) (Usage, error) {
	dir := filepath.Join(t.root, path)
	cpu, err := fields(dir, "cpu.stat", "usage_usec")
	if err != nil {
		return Usage{}, err
	}
	memory, err := fields(dir, "memory.stat", "anon", "file", "inactive_file")
	if err != nil {
		return Usage{}, err
	}
	// The root has no memory.current. Its processes use anonymous and file pages.
	total, err := number(dir, "memory.current")
	if errors.Is(err, os.ErrNotExist) {
		total, err = memory["anon"]+memory["file"], nil
	}
	return Usage{CPU: time.Duration(cpu["usage_usec"]) * time.Microsecond, Memory: workingSet(total, memory["inactive_file"])}, err
}

func (t version1) usage(path string) (Usage, error) {
	// cpuacct is usually mounted together with cpu, and always beside it.
	cpu, err := number(filepath.Join(filepath.Dir(t.cpu), "cpuacct", path), "cpuacct.usage")
	if err != nil {
		return Usage{}, err
	}
	dir := filepath.Join(t.memory, path)
	total, err := number(dir, "memory.usage_in_bytes")
	if err != nil {
		return Usage{}, err
	}
	memory, err := fields(dir, "memory.stat", "total_inactive_file")
	return Usage{CPU: time.Duration(cpu), Memory: workingSet(total, memory["total_inactive_file"])}, err
}

func (t version2) processes(path string) (int64, error) {
	n, err := number(filepath.Join(t.root, path), "pids.current")
	return int64(n), err
}

func (t version1) processes(path string) (int64, error) {
	n, err := number(filepath.Join(filepath.Dir(t.cpu), "pids", path), "pids.current")
	return int64(n), err
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

// fields reads fields of a file with lines of a name and a number. All must be there.
func fields(dir, name string, wanted ...string) (map[string]uint64, error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string]uint64{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), " ")
		for _, w := range wanted {
			if field != w {
				continue
			}
			if found[field], err = strconv.ParseUint(value, 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file.Name(), field, err)
			}
		}
	}
	if len(found) < len(wanted) {
		return nil, fmt.Errorf("%s does not have all of %s", file.Name(), strings.Join(wanted, ", "))
	}
	return found, lines.Err()
}
