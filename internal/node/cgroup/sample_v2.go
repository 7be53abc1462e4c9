// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (t version2) memoryDir(path string) string { return filepath.Join(t.root, path) }

func (t version2) pids(path string) string { return filepath.Join(t.root, path) }

func (t version2) child(path, id string) (string, error) { return childIn(t.memoryDir(path), path, id) }

func (t version2) memoryUsage(path string) (uint64, error) {
	return number(t.memoryDir(path), "memory.current")
}

func (t version2) sample(path string) (Sample, error) {
	dir := filepath.Join(t.root, path)
	cpu, err := readStat(dir, "cpu.stat")
	if err != nil {
		return Sample{}, err
	}
	memory, err := readStat(dir, "memory.stat")
	if err != nil {
		return Sample{}, err
	}
	// The root has no memory.current. Its processes use anonymous and file pages.
	total, err := t.memoryUsage(path)
	if errors.Is(err, os.ErrNotExist) {
		total, err = memory.value("anon")+memory.value("file"), nil
	}
	s := Sample{
		Usage:       Usage{CPU: microseconds(cpu.value("usage_usec")), Memory: workingSet(total, memory.value("inactive_file"))},
		MemoryUsage: total, RSS: memory.value("anon"), Cache: memory.value("file"), MappedFile: memory.value("file_mapped"),
		PageFaults: memory.value("pgfault"), MajorPageFaults: memory.value("pgmajfault"),
		OwnPageFaults: memory.value("pgfault"), OwnMajorPageFaults: memory.value("pgmajfault"),
		MemoryStat: MemoryStat{
			ActiveFile: memory.valueOr("active_file", -1), InactiveFile: memory.valueOr("inactive_file", -1),
			DirtyFile: memory.valueOr("file_dirty", -1), WritebackFile: memory.valueOr("file_writeback", -1),
			Scanned: memory.valueOr("pgscan", -1), Reclaimed: memory.valueOr("pgsteal", -1), Kernel: memory.valueOr("kernel", -1),
			FileRefaults: memory.valueOr("workingset_refault_file", -1), AnonRefaults: memory.valueOr("workingset_refault_anon", -1),
		},
		CPUPressure:    readPressure(filepath.Join(dir, "cpu.pressure")),
		MemoryPressure: readPressure(filepath.Join(dir, "memory.pressure")),
		IOPressure:     readPressure(filepath.Join(dir, "io.pressure")),
	}
	if swap, err := number(dir, "memory.swap.current"); err == nil {
		s.Swap = &swap
	}
	return s, err
}

func (t version2) allLimits(path string) Limits {
	dir := filepath.Join(t.root, path)
	cpu, _ := readStat(dir, "cpu.stat") // no statistics are zeros
	events, _ := readStat(dir, "memory.events")
	l := Limits{
		CPUQuota: -1, CPUPeriod: 100000, CPUShares: shares(orZero(dir, "cpu.weight")),
		Memory: limitOf(dir, "memory.max"), Swap: limitOf(dir, "memory.swap.max"), MemoryFailures: events.value("max"), OOMKills: events.value("oom_kill"),
		MemoryReservation: limitOf(dir, "memory.min"), MemoryPeak: orZero(dir, "memory.peak"), HighEvents: events.value("high"), MaxEvents: events.value("max"),
		Periods: cpu.value("nr_periods"), ThrottledPeriods: cpu.value("nr_throttled"), ThrottledTime: microseconds(cpu.value("throttled_usec")),
		Bursts: cpu.value("nr_bursts"), BurstTime: microseconds(cpu.value("burst_usec")),
		User: microseconds(cpu.value("user_usec")), System: microseconds(cpu.value("system_usec")),
		Threads: countOf(dir, "pids.current"), MaxThreads: limitOf(dir, "pids.max"), KernelMemory: -1,
	}
	if text, err := read(dir, "cpu.max"); err == nil {
		quota, period, _ := strings.Cut(text, " ")
		l.CPUQuota = parseLimit(quota, nil)
		if n, err := strconv.ParseInt(period, 10, 64); err == nil {
			l.CPUPeriod = n
		}
	}
	return l
}

// shares converts a weight (1 to 10000) to shares (2 to 262144), as weight converts shares.
func shares(weight uint64) int64 {
	if weight == 0 {
		return 0
	}
	return 2 + (int64(weight)-1)*262142/9999
}

func microseconds(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }
