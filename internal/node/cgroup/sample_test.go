// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const pressure = "some avg10=1.50 avg60=2.00 avg300=3.00 total=42\nfull avg10=0.00 avg60=0.50 avg300=0.00 total=7\n"

func TestSampleAndLimits(t *testing.T) {
	waited := &Pressure{Some: PressureLine{Avg10: 1.5, Avg60: 2, Avg300: 3, Total: 42}, Full: PressureLine{Avg60: 0.5, Total: 7}}
	for _, tc := range []struct {
		name   string
		files  map[string]string
		child  string
		sample Sample
		limits Limits
	}{
		{"version 2, systemd", map[string]string{
			"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory", "k/cgroup.subtree_control": "cpu memory",
			"k/p/cri-containerd-abc.scope/cpu.stat":            "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 9\nnr_throttled 4\nthrottled_usec 3\n",
			"k/p/cri-containerd-abc.scope/memory.stat":         "anon 10\nfile 40\nfile_mapped 5\ninactive_file 30\npgfault 8\npgmajfault 2\n",
			"k/p/cri-containerd-abc.scope/memory.current":      "70\n",
			"k/p/cri-containerd-abc.scope/memory.swap.current": "6\n",
			"k/p/cri-containerd-abc.scope/cpu.pressure":        pressure,
			"k/p/cri-containerd-abc.scope/cpu.max":             "50000 100000\n",
			"k/p/cri-containerd-abc.scope/cpu.weight":          "39\n",
			"k/p/cri-containerd-abc.scope/memory.max":          "1000\n",
			"k/p/cri-containerd-abc.scope/memory.swap.max":     "max\n",
			"k/p/cri-containerd-abc.scope/memory.events":       "low 0\nhigh 4\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
			"k/p/cri-containerd-abc.scope/memory.min":          "500\n",
			"k/p/cri-containerd-abc.scope/memory.peak":         "90\n",
			"k/p/cri-containerd-abc.scope/pids.current":        "3\n",
			"k/p/cri-containerd-abc.scope/pids.max":            "max\n",
			"k/p/cri-containerd-abc.scope/cgroup.procs":        "17\n18\n",
		}, "/k/p/cri-containerd-abc.scope",
			Sample{Usage: Usage{1500 * time.Microsecond, 40}, MemoryUsage: 70, RSS: 10, Cache: 40, MappedFile: 5, Swap: new(uint64(6)),
				PageFaults: 8, MajorPageFaults: 2, OwnPageFaults: 8, OwnMajorPageFaults: 2, CPUPressure: waited,
				MemoryStat: MemoryStat{-1, 30, -1, -1, -1, -1, -1, -1, -1}},
			Limits{CPUQuota: 50000, CPUPeriod: 100000, CPUShares: 998, Memory: 1000, Swap: -1, MemoryFailures: 12, OOMKills: 2,
				MemoryReservation: 500, MemoryPeak: 90, KernelMemory: -1, HighEvents: 4, MaxEvents: 12,
				Periods: 9, ThrottledPeriods: 4, ThrottledTime: 3 * time.Microsecond,
				User: time.Millisecond, System: 500 * time.Microsecond, Threads: 3, MaxThreads: -1}},
		{"version 1, cgroupfs", map[string]string{
			"cpu/tasks": "", "memory/tasks": "",
			"cpuacct/k/p/abc/cpuacct.usage":              "1500000\n",
			"cpuacct/k/p/abc/cpuacct.usage_user":         "1000000\n",
			"cpuacct/k/p/abc/cpuacct.usage_sys":          "500000\n",
			"memory/k/p/abc/memory.usage_in_bytes":       "70\n",
			"memory/k/p/abc/memory.stat":                 "rss 1\ntotal_rss 10\ntotal_cache 40\ntotal_mapped_file 5\ntotal_inactive_file 30\ntotal_pgfault 8\ntotal_pgmajfault 2\ntotal_swap 6\n",
			"memory/k/p/abc/memory.limit_in_bytes":       "1000\n",
			"memory/k/p/abc/memory.memsw.limit_in_bytes": "1500\n",
			"memory/k/p/abc/memory.failcnt":              "12\n",
			"memory/k/p/abc/memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"memory/k/p/abc/memory.max_usage_in_bytes":   "90\n",
			"memory/k/p/abc/memory.soft_limit_in_bytes":  "9223372036854771712\n",
			"memory/k/p/abc/cgroup.procs":                "17\n18\n",
			"cpu/k/p/abc/cpu.cfs_quota_us":               "-1\n",
			"cpu/k/p/abc/cpu.cfs_period_us":              "100000\n",
			"cpu/k/p/abc/cpu.shares":                     "512\n",
			"cpu/k/p/abc/cpu.stat":                       "nr_periods 9\nnr_throttled 4\nthrottled_time 3000\n",
			"pids/k/p/abc/pids.current":                  "3\n",
			"pids/k/p/abc/pids.max":                      "100\n",
		}, "/k/p/abc",
			Sample{Usage: Usage{1500 * time.Microsecond, 40}, MemoryUsage: 70, RSS: 10, Cache: 40, MappedFile: 5, Swap: new(uint64(6)), PageFaults: 8, MajorPageFaults: 2,
				MemoryStat: MemoryStat{-1, 30, -1, -1, -1, -1, -1, -1, -1}},
			Limits{CPUQuota: -1, CPUPeriod: 100000, CPUShares: 512, Memory: 1000, Swap: 500, MemoryFailures: 12, OOMKills: 2,
				MemoryReservation: -1, MemoryPeak: 90, KernelMemory: -1,
				Periods: 9, ThrottledPeriods: 4, ThrottledTime: 3 * time.Microsecond,
				User: time.Millisecond, System: 500 * time.Microsecond, Threads: 3, MaxThreads: 100}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newIn(tree(t, tc.files), "/k")
			path, err := m.ContainerPath("/k/p", "abc")
			if err != nil || path != tc.child {
				t.Fatalf("the container's cgroup is %q, %v, want %q", path, err, tc.child)
			}
			sample, err := m.Sample(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.sample, sample); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.limits, m.Limits(path)); diff != "" {
				t.Error(diff)
			}
			if n, err := m.Processes(path); err != nil || n != 3 {
				t.Errorf("%d processes, %v", n, err)
			}
			if pids, err := m.PIDs(path); err != nil || !slices.Equal(pids, []int{17, 18}) {
				t.Errorf("processes %v, %v", pids, err)
			}
			if pids, err := m.PIDs("/k/gone"); err == nil {
				t.Errorf("a cgroup that does not exist has the processes %v", pids)
			}
			if _, err := m.ContainerPath("/k/p", "other"); err == nil {
				t.Error("a container without a cgroup has one")
			}
		})
	}
}
