// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The files of a container with cgroup v2 and Linux 6.6.
const (
	memoryStat2 = `anon 5382144
file 30142464
kernel 1982464
kernel_stack 65536
pagetables 237568
sec_pagetables 0
percpu 1344
sock 0
vmalloc 0
shmem 0
zswap 0
zswapped 0
file_mapped 4096
file_dirty 32768
file_writeback 8192
swapcached 0
anon_thp 0
file_thp 0
shmem_thp 0
inactive_anon 5369856
active_anon 12288
inactive_file 9388032
active_file 20750336
unevictable 0
slab_reclaimable 1231520
slab_unreclaimable 386952
slab 1618472
workingset_refault_anon 12
workingset_refault_file 8378
workingset_activate_anon 0
workingset_activate_file 4160
workingset_restore_anon 0
workingset_restore_file 902
workingset_nodereclaim 0
pgscan 51023
pgsteal 33518
pgscan_kswapd 0
pgscan_direct 51023
pgscan_khugepaged 0
pgsteal_kswapd 0
pgsteal_direct 33518
pgsteal_khugepaged 0
pgfault 70337
pgmajfault 80
pgrefill 1029
pgactivate 6110
pgdeactivate 292
pglazyfree 0
pglazyfreed 0
zswpin 0
zswpout 0
thp_fault_alloc 0
thp_collapse_alloc 0
`
	cpuStat2 = `usage_usec 5311824
user_usec 3204116
system_usec 2107708
core_sched.force_idle_usec 0
nr_periods 310
nr_throttled 12
throttled_usec 450221
nr_bursts 7
burst_usec 183040
`
)

// The files of a pod with cgroup v1 and Linux 6.18. The fields without total_ are without its containers.
const (
	memoryStat1 = `cache 0
rss 0
rss_huge 0
shmem 0
mapped_file 0
dirty 0
writeback 0
workingset_refault_anon 0
workingset_refault_file 3
swap 0
swapcached 0
pgpgin 41
pgpgout 41
pgfault 25
pgmajfault 1
inactive_anon 0
active_anon 0
inactive_file 0
active_file 0
unevictable 0
hierarchical_memory_limit 9223372036854771712
hierarchical_memsw_limit 9223372036854771712
total_cache 30142464
total_rss 1884160
total_rss_huge 0
total_shmem 0
total_mapped_file 4096
total_dirty 32768
total_writeback 8192
total_workingset_refault_anon 12
total_workingset_refault_file 8378
total_swap 0
total_swapcached 0
total_pgpgin 41339
total_pgpgout 33518
total_pgfault 70337
total_pgmajfault 80
total_inactive_anon 1822720
total_active_anon 12288
total_inactive_file 9388032
total_active_file 20750336
total_unevictable 0
`
	cpuStat1 = "nr_periods 310\nnr_throttled 12\nthrottled_time 450221000\nnr_bursts 7\nburst_time 183040000\n"
)

// statistics are what the test reads of a sample and of limits.
type statistics struct {
	MemoryStat
	PageFaults, MajorPageFaults, OwnPageFaults, OwnMajorPageFaults uint64
	KernelMemory                                                   int64
	Bursts                                                         uint64
	BurstTime                                                      time.Duration
}

func TestStatistics(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  statistics
	}{
		"version 2": {map[string]string{
			"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory",
			"k/cpu.stat": cpuStat2, "k/memory.stat": memoryStat2, "k/memory.current": "37507072\n",
		}, statistics{
			MemoryStat: MemoryStat{
				ActiveFile: 20750336, InactiveFile: 9388032, DirtyFile: 32768, WritebackFile: 8192,
				Scanned: 51023, Reclaimed: 33518, FileRefaults: 8378, AnonRefaults: 12, Kernel: 1982464,
			},
			PageFaults: 70337, MajorPageFaults: 80, OwnPageFaults: 70337, OwnMajorPageFaults: 80,
			KernelMemory: -1, Bursts: 7, BurstTime: 183040 * time.Microsecond,
		}},
		"version 2, Linux 5.8": {map[string]string{
			"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory",
			"k/cpu.stat":       "usage_usec 2\nuser_usec 1\nsystem_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
			"k/memory.stat":    "anon 1\nfile 2\nfile_dirty 0\nfile_writeback 0\ninactive_file 1\nactive_file 1\nworkingset_refault 9\npgfault 3\npgmajfault 0\npgscan 0\npgsteal 0\n",
			"k/memory.current": "3\n",
		}, statistics{
			MemoryStat: MemoryStat{ActiveFile: 1, InactiveFile: 1, FileRefaults: -1, AnonRefaults: -1, Kernel: -1},
			PageFaults: 3, OwnPageFaults: 3, KernelMemory: -1,
		}},
		"version 1": {map[string]string{
			"cpu/tasks": "", "memory/tasks": "", "cpuacct/k/cpuacct.usage": "5311824000\n", "cpu/k/cpu.stat": cpuStat1,
			"memory/k/memory.stat": memoryStat1, "memory/k/memory.usage_in_bytes": "34009088\n", "memory/k/memory.kmem.usage_in_bytes": "1982464\n",
		}, statistics{
			MemoryStat: MemoryStat{
				ActiveFile: 20750336, InactiveFile: 9388032, DirtyFile: 32768, WritebackFile: 8192,
				Scanned: -1, Reclaimed: -1, FileRefaults: 8378, AnonRefaults: 12, Kernel: -1,
			},
			PageFaults: 70337, MajorPageFaults: 80, OwnPageFaults: 25, OwnMajorPageFaults: 1,
			KernelMemory: 1982464, Bursts: 7, BurstTime: 183040 * time.Microsecond,
		}},
		"version 1 without accounting of the kernel's memory": {map[string]string{
			"cpu/tasks": "", "memory/tasks": "", "cpuacct/k/cpuacct.usage": "1\n", "memory/k/memory.usage_in_bytes": "1\n",
			"memory/k/memory.stat": "total_inactive_file 0\ntotal_active_file 1\ntotal_dirty 0\ntotal_writeback 0\n",
		}, statistics{
			MemoryStat:   MemoryStat{ActiveFile: 1, Scanned: -1, Reclaimed: -1, FileRefaults: -1, AnonRefaults: -1, Kernel: -1},
			KernelMemory: -1,
		}},
	} {
		m := newIn(tree(t, test.files), "/k")
		s, err := m.Sample("/k")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l := m.Limits("/k")
		got := statistics{
			s.MemoryStat, s.PageFaults, s.MajorPageFaults, s.OwnPageFaults, s.OwnMajorPageFaults, l.KernelMemory, l.Bursts, l.BurstTime,
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
