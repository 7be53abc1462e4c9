// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// containerMetric is a metric of a cgroup.
type containerMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// extra are the values of the labels before those of all containers.
	extra []string
	// timed is set if the metric has the time of the sample, and whole if it needs a whole one.
	timed, whole bool
	// value reports false if the cgroup has no such value.
	value func(*row) (float64, bool)
}

func sampled(name, help string, kind prometheus.ValueType, value func(*row) float64) containerMetric {
	return stamped(name, help, kind, func(r *row) (float64, bool) { return value(r), true })
}

// stamped is an optional metric with the time of the sample.
func stamped(name, help string, kind prometheus.ValueType, value func(*row) (float64, bool)) containerMetric {
	m := optional(name, help, kind, value)
	m.timed = true
	return m
}

func optional(name, help string, kind prometheus.ValueType, value func(*row) (float64, bool)) containerMetric {
	return containerMetric{desc: prometheus.NewDesc(name, help, containerLabels, nil), kind: kind, whole: true, value: value}
}

// labelled is a stamped metric with more labels.
func labelled(name, help string, kind prometheus.ValueType, labels, values []string, value func(*row) (float64, bool)) containerMetric {
	m := optional(name, help, kind, value)
	m.desc, m.extra, m.timed = prometheus.NewDesc(name, help, append(labels, containerLabels...), nil), values, true
	return m
}

// counted is a stamped metric that a cgroup does not have if its value is -1.
func counted(name, help string, kind prometheus.ValueType, value func(*row) int64) containerMetric {
	return stamped(name, help, kind, func(r *row) (float64, bool) {
		n := value(r)
		return float64(n), n >= 0
	})
}

// kernelMemory returns the kernel's memory, which is in the sample with version 2 and in the limits with version 1: -1 for none.
func kernelMemory(r *row) int64 { return max(r.Kernel, r.limits.KernelMemory) }

func fault(kind string, scope string, value func(*row) float64) containerMetric {
	return labelled("container_memory_failures_total", "Cumulative count of memory allocation failures.", prometheus.CounterValue,
		[]string{"failure_type", "scope"}, []string{kind, scope}, func(r *row) (float64, bool) { return value(r), true })
}

// limit returns a value that cAdvisor reports as 0 if there is no limit.
func limit(n int64) float64 { return float64(max(n, 0)) }

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// containerMetrics are the metrics of each cgroup.
var containerMetrics = append(basicMetrics,
	sampled("container_last_seen", "Last time a container was seen by the exporter", gauge, func(r *row) float64 { return float64(r.now.Unix()) }),
	optional("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", gauge,
		func(r *row) (float64, bool) { return float64(r.started.Unix()), !r.started.IsZero() }),
	optional("container_creation_time_seconds", "Container creation time since unix epoch in seconds.", gauge,
		func(r *row) (float64, bool) { return float64(r.created.Unix()), !r.created.IsZero() }),
	sampled("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", counter, func(r *row) float64 { return r.limits.User.Seconds() }),
	sampled("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", counter, func(r *row) float64 { return r.limits.System.Seconds() }),
	throttled("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", func(r *row) float64 { return float64(r.limits.Periods) }),
	throttled("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", func(r *row) float64 { return float64(r.limits.ThrottledPeriods) }),
	throttled("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", func(r *row) float64 { return r.limits.ThrottledTime.Seconds() }),
	throttled("container_cpu_cfs_burst_periods_total", "Number of periods when burst occurs.", func(r *row) float64 { return float64(r.limits.Bursts) }),
	throttled("container_cpu_cfs_burst_seconds_total", "Total time duration the container has been bursted.", func(r *row) float64 { return r.limits.BurstTime.Seconds() }),
	optional("container_spec_cpu_period", "CPU period of the container.", gauge, func(r *row) (float64, bool) { return float64(r.limits.CPUPeriod), r.limits.CPUPeriod > 0 }),
	optional("container_spec_cpu_quota", "CPU quota of the container.", gauge, func(r *row) (float64, bool) { return float64(r.limits.CPUQuota), r.limits.CPUQuota > 0 }),
	optional("container_spec_cpu_shares", "CPU share of the container.", gauge, func(r *row) (float64, bool) { return float64(r.limits.CPUShares), r.limits.CPUShares > 0 }),
	optional("container_spec_memory_limit_bytes", "Memory limit for the container.", gauge, func(r *row) (float64, bool) { return limit(r.limits.Memory), true }),
	optional("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", gauge, func(r *row) (float64, bool) { return limit(r.limits.Swap), true }),
	optional("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.", gauge,
		func(r *row) (float64, bool) { return limit(r.limits.MemoryReservation), true }),
	sampled("container_memory_cache", "Number of bytes of page cache memory.", gauge, func(r *row) float64 { return float64(r.Cache) }),
	sampled("container_memory_rss", "Size of RSS in bytes.", gauge, func(r *row) float64 { return float64(r.RSS) }),
	counted("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", gauge, kernelMemory),
	sampled("container_memory_mapped_file", "Size of memory mapped files in bytes.", gauge, func(r *row) float64 { return float64(r.MappedFile) }),
	optional("container_memory_swap", "Container swap usage in bytes.", gauge, func(r *row) (float64, bool) {
		if r.Swap == nil {
			return 0, false
		}
		return float64(*r.Swap), true
	}),
	sampled("container_memory_failcnt", "Number of memory usage hits limits", counter, func(r *row) float64 { return float64(r.limits.MemoryFailures) }),
	sampled("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", gauge, func(r *row) float64 { return float64(r.MemoryUsage) }),
	sampled("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", gauge, func(r *row) float64 { return float64(r.limits.MemoryPeak) }),
	counted("container_memory_total_active_file_bytes", "Current total active file in bytes.", gauge, func(r *row) int64 { return r.ActiveFile }),
	counted("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.", gauge, func(r *row) int64 { return r.InactiveFile }),
	counted("container_memory_file_dirty_bytes", "Number of bytes of file cache that has been modified but not yet written back to disk.", gauge, func(r *row) int64 { return r.DirtyFile }),
	counted("container_memory_file_writeback_bytes", "Number of bytes of file cache that is currently being written back to disk.", gauge, func(r *row) int64 { return r.WritebackFile }),
	counted("container_memory_pgscan_total", "Cumulative number of pages scanned by the page reclaim algorithm.", counter, func(r *row) int64 { return r.Scanned }),
	counted("container_memory_pgsteal_total", "Cumulative number of pages reclaimed by the page reclaim algorithm.", counter, func(r *row) int64 { return r.Reclaimed }),
	counted("container_memory_workingset_refault_file_total", "Cumulative number of refaults of previously evicted file pages.", counter, func(r *row) int64 { return r.FileRefaults }),
	counted("container_memory_workingset_refault_anon_total", "Cumulative number of refaults of previously evicted anonymous pages.", counter, func(r *row) int64 { return r.AnonRefaults }),
	sampled("container_memory_events_high_total", "Cumulative count of memory.high throttle events for the container", counter, func(r *row) float64 { return float64(r.limits.HighEvents) }),
	sampled("container_memory_events_max_total", "Cumulative count of memory.max limit hit events for the container", counter, func(r *row) float64 { return float64(r.limits.MaxEvents) }),
	sampled("container_oom_events_total", "Count of out of memory events observed for the container", counter, func(r *row) float64 { return float64(r.limits.OOMKills) }),
	stalled("cpu", "CPU congestion", func(r *row) *cgroup.Pressure { return r.CPUPressure }),
	waited("cpu", "CPU congestion", func(r *row) *cgroup.Pressure { return r.CPUPressure }),
	stalled("memory", "memory congestion", func(r *row) *cgroup.Pressure { return r.MemoryPressure }),
	waited("memory", "memory congestion", func(r *row) *cgroup.Pressure { return r.MemoryPressure }),
	stalled("io", "IO congestion", func(r *row) *cgroup.Pressure { return r.IOPressure }),
	waited("io", "IO congestion", func(r *row) *cgroup.Pressure { return r.IOPressure }),
	fault("pgfault", "hierarchy", func(r *row) float64 { return float64(r.PageFaults) }),
	fault("pgmajfault", "hierarchy", func(r *row) float64 { return float64(r.MajorPageFaults) }),
	fault("pgfault", "container", func(r *row) float64 { return float64(r.OwnPageFaults) }),
	fault("pgmajfault", "container", func(r *row) float64 { return float64(r.OwnMajorPageFaults) }),
	ofProcesses("container_processes", "Number of processes running inside the container.", func(p *processes) int { return p.count }),
	ofProcesses("container_file_descriptors", "Number of open file descriptors for the container.", func(p *processes) int { return p.files }),
	ofProcesses("container_sockets", "Number of open sockets for the container.", func(p *processes) int { return p.sockets }),
	sampled("container_threads_max", "Maximum number of threads allowed inside the container, infinity if value is zero", gauge, func(r *row) float64 { return limit(r.limits.MaxThreads) }),
	counted("container_threads", "Number of threads running inside the container", gauge, func(r *row) int64 { return r.limits.Threads }),
	labelled("container_ulimits_soft", "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice", gauge,
		[]string{"ulimit"}, []string{"max_open_files"}, func(r *row) (float64, bool) {
			if r.processes == nil || r.processes.maxFiles == nil {
				return 0, false
			}
			return float64(*r.processes.maxFiles), true
		}),
	ofLayer("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", func(u *used) uint64 { return u.bytes }),
)

// basicMetrics need no more than the CPU time and the working set.
var basicMetrics = []containerMetric{
	basic(labelled("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", counter, []string{"cpu"}, []string{"total"},
		func(r *row) (float64, bool) { return r.CPU.Seconds(), true })),
	basic(sampled("container_memory_working_set_bytes", "Current working set in bytes.", gauge, func(r *row) float64 { return float64(r.Memory) })),
}

func basic(m containerMetric) containerMetric {
	m.whole = false
	return m
}

// stalled is the time during which no task could proceed, and waited the time during which at least one could not.
func stalled(resource, cause string, pressure func(*row) *cgroup.Pressure) containerMetric {
	return pressed("container_pressure_"+resource+"_stalled_seconds_total", "Time during which no task of the container could proceed because of "+cause+".",
		pressure, func(p *cgroup.Pressure) uint64 { return p.Full.Total })
}

func waited(resource, cause string, pressure func(*row) *cgroup.Pressure) containerMetric {
	return pressed("container_pressure_"+resource+"_waiting_seconds_total", "Time during which tasks of the container waited because of "+cause+".",
		pressure, func(p *cgroup.Pressure) uint64 { return p.Some.Total })
}

// pressed is a counter of PSI, which the kernel counts in microseconds.
func pressed(name, help string, pressure func(*row) *cgroup.Pressure, total func(*cgroup.Pressure) uint64) containerMetric {
	return stamped(name, help, counter, func(r *row) (float64, bool) {
		p := pressure(r)
		if p == nil {
			return 0, false
		}
		return float64(total(p)) / 1e6, true
	})
}

// throttled is a counter of cgroups with a quota of CPU time.
func throttled(name, help string, value func(*row) float64) containerMetric {
	return optional(name, help, counter, func(r *row) (float64, bool) { return value(r), r.limits.CPUQuota > 0 })
}

// ofProcesses is about the processes of the cgroup itself.
func ofProcesses(name, help string, value func(*processes) int) containerMetric {
	return stamped(name, help, gauge, func(r *row) (float64, bool) {
		if r.processes == nil {
			return 0, false
		}
		return float64(value(r.processes)), true
	})
}

// ofLayer is about the writable layer of a container. Its device is the snapshotter's.
func ofLayer(name, help string, value func(*used) uint64) containerMetric {
	return labelled(name, help, gauge, []string{"device"}, []string{""}, func(r *row) (float64, bool) {
		if r.layer == nil {
			return 0, false
		}
		return float64(value(r.layer)), true
	})
}

type deviceMetric struct {
	desc   *prometheus.Desc
	labels func(cgroup.DeviceIO) []string
	// value reports false if the device has no such value.
	value func(cgroup.DeviceIO) (float64, bool)
}

// deviceMetrics are the metrics of each block device.
var deviceMetrics = []deviceMetric{
	ofDevice("reads_bytes_total", "Cumulative count of bytes read", func(d cgroup.DeviceIO) uint64 { return d.ReadBytes }),
	ofDevice("reads_total", "Cumulative count of reads completed", func(d cgroup.DeviceIO) uint64 { return d.Reads }),
	ofDevice("writes_bytes_total", "Cumulative count of bytes written", func(d cgroup.DeviceIO) uint64 { return d.WriteBytes }),
	ofDevice("writes_total", "Cumulative count of writes completed", func(d cgroup.DeviceIO) uint64 { return d.Writes }),
	ofCost("usage", "Cumulative IOCost usage in seconds"),
	ofCost("wait", "Cumulative IOCost wait in seconds"),
	ofCost("indebt", "Cumulative IOCost debt in seconds"),
	ofCost("indelay", "Cumulative IOCost delay in seconds"),
	ofOperation("Read", func(d cgroup.DeviceIO) uint64 { return d.ReadBytes }),
	ofOperation("Write", func(d cgroup.DeviceIO) uint64 { return d.WriteBytes }),
}

func ofDevice(name, help string, value func(cgroup.DeviceIO) uint64) deviceMetric {
	return optionalOfDevice(name, help, func(d cgroup.DeviceIO) (float64, bool) { return float64(value(d)), true })
}

// ofCost is a time of the I/O cost controller.
func ofCost(kind, help string) deviceMetric {
	return optionalOfDevice("io_cost_"+kind+"_seconds_total", help, func(d cgroup.DeviceIO) (float64, bool) {
		cost, ok := d.Costs[kind]
		return cost.Seconds(), ok
	})
}

func optionalOfDevice(name, help string, value func(cgroup.DeviceIO) (float64, bool)) deviceMetric {
	return deviceMetric{
		prometheus.NewDesc("container_fs_"+name, help, append([]string{"device"}, containerLabels...), nil),
		func(d cgroup.DeviceIO) []string { return []string{d.Device} }, value,
	}
}

var deviceUsage = prometheus.NewDesc("container_blkio_device_usage_total", "Blkio Device bytes usage",
	append([]string{"device", "major", "minor", "operation"}, containerLabels...), nil)

func ofOperation(operation string, value func(cgroup.DeviceIO) uint64) deviceMetric {
	return deviceMetric{deviceUsage, func(d cgroup.DeviceIO) []string {
		return []string{d.Device, strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10), operation}
	}, func(d cgroup.DeviceIO) (float64, bool) { return float64(value(d)), true }}
}

type networkMetric struct {
	desc  *prometheus.Desc
	value func(Interface) uint64
}

// networkMetrics are the metrics of each interface.
var networkMetrics = []networkMetric{
	ofInterface("receive_bytes_total", "Cumulative count of bytes received", func(i Interface) uint64 { return i.Rx.Bytes }),
	ofInterface("receive_packets_total", "Cumulative count of packets received", func(i Interface) uint64 { return i.Rx.Packets }),
	ofInterface("receive_packets_dropped_total", "Cumulative count of packets dropped while receiving", func(i Interface) uint64 { return i.Rx.Dropped }),
	ofInterface("receive_errors_total", "Cumulative count of errors encountered while receiving", func(i Interface) uint64 { return i.Rx.Errors }),
	ofInterface("transmit_bytes_total", "Cumulative count of bytes transmitted", func(i Interface) uint64 { return i.Tx.Bytes }),
	ofInterface("transmit_packets_total", "Cumulative count of packets transmitted", func(i Interface) uint64 { return i.Tx.Packets }),
	ofInterface("transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting", func(i Interface) uint64 { return i.Tx.Dropped }),
	ofInterface("transmit_errors_total", "Cumulative count of errors encountered while transmitting", func(i Interface) uint64 { return i.Tx.Errors }),
}

func ofInterface(name, help string, value func(Interface) uint64) networkMetric {
	return networkMetric{prometheus.NewDesc("container_network_"+name, help, append([]string{"interface"}, containerLabels...), nil), value}
}
