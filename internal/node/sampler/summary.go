// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// Summary returns what /stats/summary serves.
func (s *Sampler) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	snapshot := s.Snapshot(ctx, !onlyCPUAndMemory)
	if snapshot.Err != nil {
		return nil, snapshot.Err
	}
	r := report{options: &s.options, snapshot: snapshot, disk: &disk{}, started: s.started}
	if onlyCPUAndMemory {
		return r.summary(), nil
	}
	r.disk, r.whole = s.disk.Load(), true
	summary := r.summary()
	r.addMachine(&summary.Node)
	return summary, nil
}

// report converts a snapshot.
type report struct {
	options  *Options
	snapshot *Snapshot
	disk     *disk
	// started is when the agent was made.
	started time.Time
	// whole is set if more than CPU and memory is reported.
	whole bool
	// nodeFs is the file system of the node's directory.
	nodeFs *statsapi.FsStats
}

func (r *report) summary() *statsapi.Summary {
	summary := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: r.options.Node, StartTime: metav1.NewTime(BootTime(r.snapshot.Time))}, Pods: []statsapi.PodStats{}}
	if r.whole {
		r.nodeFs, _ = statfs(r.options.RootDir, r.snapshot.Time) // without it, the node has no fs
		summary.Node.Fs = r.nodeFs
	}
	if m := r.snapshot.Node; m != nil {
		summary.Node.CPU, summary.Node.Memory = cpuOf(m), memoryOf(m, r.options.Memory)
		summary.Node.IO, summary.Node.Swap = ioOf(m), machineSwap(m.Time)
	}
	summary.Node.SystemContainers = r.systemContainers()
	for i := range r.snapshot.Pods {
		summary.Pods = append(summary.Pods, r.pod(&r.snapshot.Pods[i]))
	}
	return summary
}

// systemContainers are the pods together, and the process that the agent is part of.
func (r *report) systemContainers() []statsapi.ContainerStats {
	var all []statsapi.ContainerStats
	if m := r.snapshot.AllPods; m != nil {
		all = append(all, statsapi.ContainerStats{
			Name: statsapi.SystemContainerPods, StartTime: metav1.NewTime(BootTime(m.Time)), CPU: cpuOf(m), Memory: memoryOf(m, r.options.Memory), IO: ioOf(m), Swap: swapOf(m),
		})
	}
	if m := r.snapshot.Own; m != nil {
		all = append(all, statsapi.ContainerStats{
			Name: statsapi.SystemContainerKubelet, StartTime: metav1.NewTime(r.started), CPU: cpuOf(m), Memory: memoryOf(m, 0),
		})
	}
	return all
}

func (r *report) pod(p *PodSnapshot) statsapi.PodStats {
	stats := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		Containers: []statsapi.ContainerStats{},
	}
	if p.Status.StartTime != nil {
		stats.StartTime = *p.Status.StartTime
	}
	if m := p.Usage; m != nil {
		stats.CPU, stats.Memory, stats.IO, stats.Swap = cpuOf(m), memoryOf(m, memoryLimit(p)), ioOf(m), swapOf(m)
	}
	var local used
	for _, c := range p.Containers {
		container, uses := r.container(p, c)
		stats.Containers = append(stats.Containers, container)
		local.bytes, local.inodes = local.bytes+uses.bytes, local.inodes+uses.inodes
	}
	if !r.whole {
		return stats
	}
	stats.ProcessStats = &statsapi.ProcessStats{ProcessCount: p.Processes}
	if len(p.Interfaces) > 0 {
		stats.Network = networkOf(p.Interfaces, "eth0", r.snapshot.Time)
	}
	if r.disk.at.IsZero() {
		return stats
	}
	stats.VolumeStats = r.disk.volumes[p.UID]
	volumes := r.disk.local[p.UID]
	stats.EphemeralStorage = r.onNode(used{local.bytes + volumes.bytes, local.inodes + volumes.inodes})
	return stats
}

// container returns what a container uses, and what of it is ephemeral storage.
func (r *report) container(p *PodSnapshot, c ContainerSnapshot) (statsapi.ContainerStats, used) {
	stats := statsapi.ContainerStats{
		Name: c.Name, StartTime: metav1.NewTime(c.Started),
		CPU: cpuOf(c.Measured), Memory: memoryOf(c.Measured, containerMemoryLimit(p, c.Name)), IO: ioOf(c.Measured), Swap: swapOf(c.Measured),
	}
	var sum used
	if !r.whole {
		return stats, sum
	}
	if layer, ok := r.disk.layers[c.ID]; ok {
		rootfs := statsapi.FsStats{Time: metav1.NewTime(r.disk.at), UsedBytes: &layer.bytes, InodesUsed: &layer.inodes}
		if f := r.disk.containers; f != nil {
			rootfs.AvailableBytes, rootfs.CapacityBytes, rootfs.Inodes, rootfs.InodesFree = f.AvailableBytes, f.CapacityBytes, f.Inodes, f.InodesFree
		}
		stats.Rootfs, sum = &rootfs, layer
	}
	if logs, ok := r.disk.logs[containerKey(string(p.UID), c.Name)]; ok {
		stats.Logs = r.onNode(logs)
		sum.bytes, sum.inodes = sum.bytes+logs.bytes, sum.inodes+logs.inodes
	}
	return stats, sum
}

// onNode returns the use of the node's file system.
func (r *report) onNode(u used) *statsapi.FsStats {
	stats := statsapi.FsStats{Time: metav1.NewTime(r.disk.at), UsedBytes: &u.bytes, InodesUsed: &u.inodes}
	if f := r.nodeFs; f != nil {
		stats.AvailableBytes, stats.CapacityBytes, stats.Inodes, stats.InodesFree = f.AvailableBytes, f.CapacityBytes, f.Inodes, f.InodesFree
	}
	return &stats
}

func cpuOf(m *Measured) *statsapi.CPUStats {
	return &statsapi.CPUStats{
		Time: metav1.NewTime(m.Time), UsageCoreNanoSeconds: new(uint64(m.CPU)), UsageNanoCores: m.NanoCores, PSI: psiOf(m.CPUPressure),
	}
}

// memoryOf returns the memory that is used. limit is that of the cgroup; 0 or less for none.
func memoryOf(m *Measured, limit int64) *statsapi.MemoryStats {
	stats := &statsapi.MemoryStats{Time: metav1.NewTime(m.Time), WorkingSetBytes: new(m.Memory)}
	if limit > 0 {
		stats.AvailableBytes = new(uint64(max(limit-int64(m.Memory), 0)))
	}
	if !m.Whole {
		return stats
	}
	stats.UsageBytes, stats.RSSBytes = new(m.MemoryUsage), new(m.RSS)
	stats.PageFaults, stats.MajorPageFaults, stats.PSI = new(m.PageFaults), new(m.MajorPageFaults), psiOf(m.MemoryPressure)
	return stats
}

func ioOf(m *Measured) *statsapi.IOStats {
	if m.IOPressure == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(m.Time), PSI: psiOf(m.IOPressure)}
}

func swapOf(m *Measured) *statsapi.SwapStats {
	if m.Swap == nil {
		return nil
	}
	return &statsapi.SwapStats{Time: metav1.NewTime(m.Time), SwapUsageBytes: m.Swap}
}

func psiOf(p *cgroup.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	return &statsapi.PSIStats{Some: psiData(p.Some), Full: psiData(p.Full)}
}

// psiData returns a line of PSI. The kernel counts microseconds, and the API nanoseconds.
func psiData(l cgroup.PressureLine) statsapi.PSIData {
	return statsapi.PSIData{Total: l.Total * uint64(time.Microsecond), Avg10: l.Avg10, Avg60: l.Avg60, Avg300: l.Avg300}
}

// networkOf returns the statistics of interfaces. The default one is also the summary.
func networkOf(interfaces []Interface, defaultName string, at time.Time) *statsapi.NetworkStats {
	stats := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, i := range interfaces {
		one := statsapi.InterfaceStats{
			Name: i.Name, RxBytes: ptr.To(i.Rx.Bytes), RxErrors: ptr.To(i.Rx.Errors), TxBytes: ptr.To(i.Tx.Bytes), TxErrors: ptr.To(i.Tx.Errors),
		}
		stats.Interfaces = append(stats.Interfaces, one)
		if i.Name == defaultName {
			stats.InterfaceStats = one
		}
	}
	return stats
}
