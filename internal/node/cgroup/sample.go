// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"
)

// Sample is what the processes of a cgroup use.
type Sample struct {
	Usage
	// MemoryUsage is all memory, RSS is the anonymous memory, and Cache the pages of files.
	MemoryUsage, RSS, Cache, MappedFile uint64
	// Swap is nil if the kernel does not count it.
	Swap                        *uint64
	PageFaults, MajorPageFaults uint64
	// OwnPageFaults and OwnMajorPageFaults are without those of child cgroups, which only version 1 counts apart.
	OwnPageFaults, OwnMajorPageFaults uint64
	MemoryStat
	// Pressures are those of the kernel (PSI), if it has them.
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// MemoryStat has more fields of memory.stat, with those of child cgroups. A field is -1 if the kernel does not have it.
type MemoryStat struct {
	// ActiveFile and InactiveFile are bytes of the page cache. DirtyFile has to be written to disk, and WritebackFile is being
	// written.
	ActiveFile, InactiveFile, DirtyFile, WritebackFile int64
	// Scanned counts pages that the kernel examined to free memory, and Reclaimed those that it freed. Only version 2 has them.
	Scanned, Reclaimed int64
	// FileRefaults and AnonRefaults count pages that were needed again after they had been reclaimed. Old kernels do not
	// count them: with version 2, those before Linux 5.9.
	FileRefaults, AnonRefaults int64
	// Kernel is the kernel's memory in bytes (since Linux 5.18). Version 1 has it in [Limits].
	Kernel int64
}

// Pressure is for how long processes waited for a resource.
type Pressure struct{ Some, Full PressureLine }

// PressureLine is the share of time in percent, and the total in microseconds.
type PressureLine struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// Limits are what the processes of a cgroup may use, and how often they reached a limit.
type Limits struct {
	// CPUQuota is -1 for no limit. It is the CPU time in microseconds in each CPUPeriod.
	CPUQuota, CPUPeriod, CPUShares int64
	// Memory and Swap are -1 for no limit. Swap includes no memory.
	Memory, Swap int64
	// MemoryReservation is memory.min, or version 1's soft limit; -1 for none.
	MemoryReservation int64
	// MemoryPeak is the most memory that was used; 0 if the kernel does not record it (version 2 before Linux 5.19).
	MemoryPeak uint64
	// KernelMemory is the kernel's memory in bytes with version 1, which has a file for it; otherwise -1.
	KernelMemory int64
	// MemoryFailures counts the times that the memory limit was reached.
	MemoryFailures uint64
	// HighEvents and MaxEvents count in memory.events that memory.high and memory.max were reached; 0 with version 1, which has no
	// such file.
	HighEvents, MaxEvents uint64
	// OOMKills counts the processes that the kernel killed because of the memory limit. With cgroup v1, those of children do not
	// count.
	OOMKills uint64
	// Periods are those of CPUPeriod in which processes ran, and ThrottledPeriods those in which they had to wait.
	Periods, ThrottledPeriods uint64
	ThrottledTime             time.Duration
	// Bursts are periods in which processes used CPU time that they had saved in earlier ones, and BurstTime is that time; 0 before
	// Linux 5.16.
	Bursts       uint64
	BurstTime    time.Duration
	User, System time.Duration
	// Threads and MaxThreads include those of child cgroups. They are -1 if the kernel does not count, or limit, them.
	Threads, MaxThreads int64
}

// Version returns the version of cgroups that pods have; 0 if they have none of their own.
func (m *Manager) Version() int {
	if m.tree == nil {
		return 0
	}
	return m.tree.version()
}

// Path returns the cgroup of a pod, relative to the root of each hierarchy; empty if pods have no cgroups of their own.
func (m *Manager) Path(p *v1.Pod) string {
	if m.tree == nil {
		return ""
	}
	return m.path(qos.GetPodQOS(p), p.UID)
}

// Parent returns the cgroup of all pods; empty if pods have no cgroups of their own.
func (m *Manager) Parent() string {
	if m.tree == nil {
		return ""
	}
	return m.parent
}

// ContainerPath returns the cgroup of a container or sandbox in that of its pod.
func (m *Manager) ContainerPath(pod, id string) (string, error) {
	if m.tree == nil {
		return "", ErrNone
	}
	return m.tree.child(pod, id)
}

// Sample returns what the processes of a cgroup use.
func (m *Manager) Sample(path string) (Sample, error) {
	if m.tree == nil {
		return Sample{}, ErrNone
	}
	return m.tree.sample(path)
}

// Limits returns the limits of a cgroup. What the kernel does not tell is 0 or -1.
func (m *Manager) Limits(path string) Limits {
	if m.tree == nil {
		return Limits{Threads: -1, KernelMemory: -1}
	}
	return m.tree.allLimits(path)
}

// Processes returns how many processes a cgroup has, with those of its children.
func (m *Manager) Processes(path string) (uint64, error) {
	if m.tree == nil {
		return 0, ErrNone
	}
	return number(m.tree.pids(path), "pids.current")
}

// PIDs returns the processes of a cgroup, without those of its children.
func (m *Manager) PIDs(path string) ([]int, error) {
	if m.tree == nil {
		return nil, ErrNone
	}
	text, err := readFile(filepath.Join(m.tree.memoryDir(path), "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range strings.Lines(text) {
		pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// MachineSample returns what all processes of the machine use.
func MachineSample() (Sample, error) {
	s, err := machineSampleIn("/sys/fs/cgroup")
	for resource, into := range map[string]**Pressure{"cpu": &s.CPUPressure, "memory": &s.MemoryPressure, "io": &s.IOPressure} {
		if *into == nil {
			*into = readPressure("/proc/pressure/" + resource)
		}
	}
	return s, err
}

func machineSampleIn(root string) (Sample, error) {
	tree := detect(root)
	if tree == nil {
		return Sample{}, fmt.Errorf("%s has no cgroups with CPU and memory", root)
	}
	return tree.sample("/")
}

// detect returns the hierarchy that has controllers, or nil.
func detect(root string) hierarchy {
	for _, tree := range []hierarchy{detectV2(root), detectV1(root)} {
		if tree != nil {
			return tree
		}
	}
	return nil
}

func childIn(dir, path, id string) (string, error) {
	direct := filepath.Join(path, id)
	if _, err := os.Stat(filepath.Join(dir, id)); err == nil {
		return direct, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if entry.IsDir() && strings.Contains(entry.Name(), id) { // such as cri-containerd-<ID>.scope
			return filepath.Join(path, entry.Name()), nil
		}
	}
	return "", os.ErrNotExist
}

// stat is the content of a file with lines of a name and a number. It is searched, not parsed: a node reads hundreds of these
// files every few seconds, and a map of all fields was a tenth of the garbage of its agent.
type stat string

func readStat(dir, name string) (stat, error) {
	text, err := readFile(filepath.Join(dir, name))
	return stat(text), err
}

func (s stat) lookup(name string) (uint64, bool) {
	for line := range strings.Lines(string(s)) {
		if value, ok := strings.CutPrefix(line, name); ok && strings.HasPrefix(value, " ") {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// value returns a field; 0 if it is missing.
func (s stat) value(name string) uint64 {
	n, _ := s.lookup(name)
	return n
}

// valueOr returns a field, or another value if it is missing.
func (s stat) valueOr(name string, missing int64) int64 {
	n, ok := s.lookup(name)
	if !ok {
		return missing
	}
	return int64(n)
}

// readPressure reads a file of PSI, or returns nil if the kernel has none.
func readPressure(file string) *Pressure {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	var p Pressure
	found := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		kind, values, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "some":
			p.Some, found = parsePressure(values), true
		case "full":
			p.Full, found = parsePressure(values), true
		}
	}
	if !found {
		return nil
	}
	return &p
}

func parsePressure(values string) PressureLine {
	var line PressureLine
	for _, field := range strings.Fields(values) {
		name, value, _ := strings.Cut(field, "=")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "avg10":
			line.Avg10 = number
		case "avg60":
			line.Avg60 = number
		case "avg300":
			line.Avg300 = number
		case "total":
			line.Total, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	return line
}

// orZero returns a number of a file, or 0 if the file does not exist.
func orZero(dir, file string) uint64 {
	n, err := number(dir, file)
	if err != nil {
		return 0
	}
	return n
}

// countOf returns a number of a file, or -1 if the file does not exist.
func countOf(dir, file string) int64 {
	n, err := number(dir, file)
	if err != nil {
		return -1
	}
	return int64(n)
}

// limitOf returns a limit of a file: -1 if there is none.
func limitOf(dir, file string) int64 {
	limit := parseLimit(read(dir, file))
	if limit == 0 || limit >= noLimit {
		return -1
	}
	return limit
}
