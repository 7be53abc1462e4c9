// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"time"
)

func (t version1) controller(name, path string) string {
	return filepath.Join(filepath.Dir(t.cpu), name, path)
}

func (t version1) memoryDir(path string) string { return filepath.Join(t.memory, path) }

func (t version1) pids(path string) string { return t.controller("pids", path) }

func (t version1) child(path, id string) (string, error) { return childIn(t.memoryDir(path), path, id) }

func (t version1) memoryUsage(path string) (uint64, error) {
	return number(t.memoryDir(path), "memory.usage_in_bytes")
}

func (t version1) sample(path string) (Sample, error) {
	cpu, err := number(t.controller("cpuacct", path), "cpuacct.usage")
	if err != nil {
		return Sample{}, err
	}
	total, err := t.memoryUsage(path)
	if err != nil {
		return Sample{}, err
	}
	memory, err := readStat(t.memoryDir(path), "memory.stat")
	if err != nil {
		return Sample{}, err
	}
	s := Sample{
		Usage:       Usage{CPU: time.Duration(cpu), Memory: workingSet(total, memory.value("total_inactive_file"))},
		MemoryUsage: total, RSS: memory.value("total_rss"), Cache: memory.value("total_cache"), MappedFile: memory.value("total_mapped_file"),
		PageFaults: memory.value("total_pgfault"), MajorPageFaults: memory.value("total_pgmajfault"),
		OwnPageFaults: memory.value("pgfault"), OwnMajorPageFaults: memory.value("pgmajfault"),
		MemoryStat: MemoryStat{
			ActiveFile: memory.valueOr("total_active_file", -1), InactiveFile: memory.valueOr("total_inactive_file", -1),
			DirtyFile: memory.valueOr("total_dirty", -1), WritebackFile: memory.valueOr("total_writeback", -1),
			Scanned: -1, Reclaimed: -1, Kernel: -1,
			FileRefaults: memory.valueOr("total_workingset_refault_file", -1), AnonRefaults: memory.valueOr("total_workingset_refault_anon", -1),
		},
	}
	if swap, ok := memory.lookup("total_swap"); ok {
		s.Swap = &swap
	}
	return s, nil
}

func (t version1) allLimits(path string) Limits {
	cpu, memory, pids := filepath.Join(t.cpu, path), t.memoryDir(path), t.pids(path)
	throttled, _ := readStat(cpu, "cpu.stat") // no statistics are zeros
	oom, _ := readStat(memory, "memory.oom_control")
	l := Limits{
		CPUQuota: limitOf(cpu, "cpu.cfs_quota_us"), CPUPeriod: int64(orZero(cpu, "cpu.cfs_period_us")), CPUShares: int64(orZero(cpu, "cpu.shares")),
		Memory: limitOf(memory, "memory.limit_in_bytes"), Swap: -1, MemoryFailures: orZero(memory, "memory.failcnt"), OOMKills: oom.value("oom_kill"),
		MemoryReservation: limitOf(memory, "memory.soft_limit_in_bytes"), MemoryPeak: orZero(memory, "memory.max_usage_in_bytes"),
		Periods: throttled.value("nr_periods"), ThrottledPeriods: throttled.value("nr_throttled"), ThrottledTime: time.Duration(throttled.value("throttled_time")),
		Bursts: throttled.value("nr_bursts"), BurstTime: time.Duration(throttled.value("burst_time")),
		User:    time.Duration(orZero(t.controller("cpuacct", path), "cpuacct.usage_user")),
		System:  time.Duration(orZero(t.controller("cpuacct", path), "cpuacct.usage_sys")),
		Threads: countOf(pids, "pids.current"), MaxThreads: limitOf(pids, "pids.max"), KernelMemory: countOf(memory, "memory.kmem.usage_in_bytes"),
	}
	if both := limitOf(memory, "memory.memsw.limit_in_bytes"); both > 0 && l.Memory > 0 {
		l.Swap = both - l.Memory
	}
	return l
}
