// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// addMachine adds what a node uses beyond CPU and memory.
func (r *report) addMachine(node *statsapi.NodeStats) {
	at := r.snapshot.Time
	if interfaces, defaultName, err := machineInterfaces(); err == nil {
		node.Network = networkOf(interfaces, defaultName, at)
	}
	node.Runtime = &statsapi.RuntimeStats{ImageFs: r.disk.images, ContainerFs: r.disk.containers}
	node.Rlimit = rlimit(at)
}

// rlimit returns how many processes the machine has, and may have.
func rlimit(at time.Time) *statsapi.RlimitStats {
	stats := &statsapi.RlimitStats{Time: metav1.NewTime(at)}
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		limit, err := strconv.ParseInt(strings.TrimSpace(contentOf(file)), 10, 64)
		if err == nil && (stats.MaxPID == nil || limit < *stats.MaxPID) {
			stats.MaxPID = &limit
		}
	}
	stats.NumOfRunningProcesses = runningProcesses(contentOf("/proc/loadavg"))
	return stats
}

// runningProcesses returns the number of processes and threads in /proc/loadavg ("0.20 0.18 0.12 1/80 11206").
func runningProcesses(loadavg string) *int64 {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return nil
	}
	_, total, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

func contentOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(text)
}

// ownCgroup stands for the process of the agent among the cgroups that are measured.
const ownCgroup = "self"

// ownProcess returns what the process of the agent uses; nil if that is unknown. The other parts of the cluster are in it.
func ownProcess(at time.Time) *Measured {
	var usage unix.Rusage
	fields := strings.Fields(contentOf("/proc/self/statm"))
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil || len(fields) < 3 {
		return nil
	}
	resident, errR := strconv.ParseUint(fields[1], 10, 64)
	shared, errS := strconv.ParseUint(fields[2], 10, 64)
	if errR != nil || errS != nil {
		return nil
	}
	page := uint64(os.Getpagesize())
	return &Measured{Cgroup: ownCgroup, Time: at, Whole: true, Sample: cgroup.Sample{
		Usage:       cgroup.Usage{CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), Memory: resident * page},
		MemoryUsage: resident * page, RSS: (resident - min(shared, resident)) * page,
		PageFaults: uint64(usage.Minflt + usage.Majflt), MajorPageFaults: uint64(usage.Majflt),
	}}
}

// machineSwap returns the swap of the machine.
func machineSwap(at time.Time) *statsapi.SwapStats {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return nil
	}
	unit := uint64(info.Unit)
	return &statsapi.SwapStats{
		Time: metav1.NewTime(at), SwapAvailableBytes: new(info.Freeswap * unit), SwapUsageBytes: new((info.Totalswap - info.Freeswap) * unit),
	}
}

// BootTime returns when the machine was started.
func BootTime(now time.Time) time.Time {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(info.Uptime) * time.Second).Truncate(time.Second)
}
