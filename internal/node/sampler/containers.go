// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// Machine is what does not change of a machine.
type Machine struct {
	BootID, MachineID, SystemUUID string
	CPUs, Memory                  int64
	// Cores and Sockets are those of the CPUs that are online.
	Cores, Sockets int
}

// containerCollector collects the metrics of /metrics/cadvisor, under cAdvisor's names and labels.
type containerCollector struct {
	sampler *Sampler
	machine Machine
}

// Containers returns the collector of /metrics/cadvisor.
func (s *Sampler) Containers(machine Machine) prometheus.Collector {
	return containerCollector{s, machine}
}

// Describe implements prometheus.Collector. The collector is unchecked, because its metrics depend on the pods.
func (containerCollector) Describe(chan<- *prometheus.Desc) {}

// row is one cgroup with the values of its labels.
type row struct {
	*Measured
	limits     cgroup.Limits
	devices    []cgroup.DeviceIO
	processes  *processes // nil if they are unknown
	created    time.Time  // zero if it is unknown, as started
	started    time.Time
	now        time.Time
	interfaces []Interface
	layer      *used
	labels     []string
}

var containerLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// Collect implements prometheus.Collector.
func (c containerCollector) Collect(to chan<- prometheus.Metric) {
	c.collectMachine(to)
	snapshot, layers := c.sampler.Snapshot(context.Background(), true), c.sampler.disk.Load().layers
	write := func(r row) {
		r.limits, r.now = c.sampler.options.Cgroups.Limits(r.Cgroup), snapshot.Time
		r.devices, r.processes = c.sampler.options.Cgroups.IO(r.Cgroup), c.sampler.processesIn(r.Cgroup)
		r.collect(to)
	}
	if snapshot.Node != nil {
		interfaces, _, _ := machineInterfaces() // without them, there are no metrics about them
		boot := BootTime(snapshot.Time)
		write(row{Measured: snapshot.Node, interfaces: interfaces, created: boot, started: boot, labels: []string{"", "/", "", "", "", ""}})
	}
	if m := snapshot.AllPods; m != nil {
		write(row{Measured: m, labels: []string{"", m.Cgroup, "", "", "", ""}})
	}
	for i := range snapshot.Pods {
		p := &snapshot.Pods[i]
		if m := p.Usage; m != nil {
			write(row{Measured: m, created: podStart(p), started: podStart(p), labels: []string{"", m.Cgroup, "", "", p.Namespace, p.Name}})
		}
		if m := p.SandboxUsage; m != nil {
			write(row{Measured: m, created: p.SandboxCreated, started: podStart(p), interfaces: p.Interfaces, labels: []string{"", m.Cgroup, "", p.Sandbox, p.Namespace, p.Name}})
		}
		for _, container := range p.Containers {
			r := row{Measured: container.Measured, created: container.Created, started: container.Started, labels: []string{container.Name, container.Cgroup, container.Image, container.ID, p.Namespace, p.Name}}
			if layer, ok := layers[container.ID]; ok {
				r.layer = &layer
			}
			write(r)
		}
	}
}

func podStart(p *PodSnapshot) time.Time {
	if p.Status.StartTime == nil {
		return time.Time{}
	}
	return p.Status.StartTime.Time
}

// collect writes the metrics of a row.
func (r *row) collect(to chan<- prometheus.Metric) {
	for _, m := range containerMetrics {
		if m.whole && !r.Whole {
			continue
		}
		if value, ok := m.value(r); ok {
			metric := prometheus.MustNewConstMetric(m.desc, m.kind, value, append(m.extra, r.labels...)...)
			if m.timed {
				metric = prometheus.NewMetricWithTimestamp(r.Time, metric)
			}
			to <- metric
		}
	}
	for _, d := range r.devices {
		for _, m := range deviceMetrics {
			if value, ok := m.value(d); ok {
				metric := prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, value, append(m.labels(d), r.labels...)...)
				to <- prometheus.NewMetricWithTimestamp(r.Time, metric)
			}
		}
	}
	for _, i := range r.interfaces {
		for _, m := range networkMetrics {
			metric := prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value(i)), append([]string{i.Name}, r.labels...)...)
			to <- prometheus.NewMetricWithTimestamp(r.Time, metric)
		}
	}
}

func (c containerCollector) collectMachine(to chan<- prometheus.Metric) {
	ids := prometheus.Labels{"boot_id": c.machine.BootID, "machine_id": c.machine.MachineID, "system_uuid": c.machine.SystemUUID}
	for _, m := range []struct {
		name, help string
		value      float64
	}{
		{"machine_cpu_cores", "Number of logical CPU cores.", float64(c.machine.CPUs)},
		{"machine_cpu_physical_cores", "Number of physical CPU cores.", float64(c.machine.Cores)},
		{"machine_cpu_sockets", "Number of CPU sockets.", float64(c.machine.Sockets)},
		{"machine_memory_bytes", "Amount of memory installed on the machine.", float64(c.machine.Memory)},
		{"machine_swap_bytes", "Amount of swap memory available on the machine.", swapCapacity()},
	} {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, nil, ids), prometheus.GaugeValue, m.value)
	}
	failed := 0.0
	if c.sampler.disk.Load().at.IsZero() {
		failed = 1
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil), prometheus.GaugeValue, failed)
}

func swapCapacity() float64 {
	swap := machineSwap(time.Time{})
	if swap == nil {
		return 0
	}
	return float64(*swap.SwapAvailableBytes + *swap.SwapUsageBytes)
}
