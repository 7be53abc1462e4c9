// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// gather returns the values of a collector's metrics by their names and labels.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			values[f.GetName()+" "+strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

const none = -2 // a metric that is missing; no metric has the -1 of a missing field

// TestStatistics: each metric has its field, and is missing if the kernel does not have the field.
func TestStatistics(t *testing.T) {
	pod := podOf(Container{Name: "c", ID: "id", Image: "i", Created: start.Add(-2 * time.Second), Started: start})
	pod.SandboxCreated = start.Add(-3 * time.Second)
	s, _ := newSampler(t, false, pod)
	values := gather(t, s.Containers(Machine{Cores: 4, Sockets: 3}))
	const rest = "id=/k/podu/id,image=i,name=id,namespace=ns,pod=p"
	for name, want := range map[string]float64{
		"machine_cpu_physical_cores boot_id=,machine_id=,system_uuid=":                                         4,
		"machine_cpu_sockets boot_id=,machine_id=,system_uuid=":                                                3,
		"container_creation_time_seconds container=c," + rest:                                                  998,
		"container_creation_time_seconds container=,id=/k/podu/sandbox,image=,name=sandbox,namespace=ns,pod=p": 997,
		"container_creation_time_seconds container=,id=/k/podu,image=,name=,namespace=ns,pod=p":                none,
		"container_cpu_cfs_burst_periods_total container=c," + rest:                                            3,
		"container_cpu_cfs_burst_seconds_total container=c," + rest:                                            0.25,
		"container_memory_kernel_usage container=c," + rest:                                                    18,
		"container_memory_total_active_file_bytes container=c," + rest:                                         11,
		"container_memory_total_inactive_file_bytes container=c," + rest:                                       12,
		"container_memory_file_dirty_bytes container=c," + rest:                                                13,
		"container_memory_file_writeback_bytes container=c," + rest:                                            0,
		"container_memory_pgscan_total container=c," + rest:                                                    15,
		"container_memory_pgsteal_total container=c," + rest:                                                   16,
		"container_memory_workingset_refault_file_total container=c," + rest:                                   17,
		"container_memory_workingset_refault_anon_total container=c," + rest:                                   none,
		"container_memory_failures_total container=c,failure_type=pgfault," + withScope(rest, "hierarchy"):     9,
		"container_memory_failures_total container=c,failure_type=pgfault," + withScope(rest, "container"):     8,
		"container_memory_failures_total container=c,failure_type=pgmajfault," + withScope(rest, "container"):  2,
		"container_fs_io_cost_usage_seconds_total container=c,device=/dev/sda," + rest:                         0.5,
		"container_fs_io_cost_wait_seconds_total container=c,device=/dev/sda," + rest:                          0,
		"container_fs_io_cost_indebt_seconds_total container=c,device=/dev/sda," + rest:                        none,
		"container_fs_io_cost_indelay_seconds_total container=c,device=/dev/sda," + rest:                       none,
	} {
		got, ok := values[name]
		if !ok {
			got = none
		}
		if got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func withScope(labels, scope string) string { return labels + ",scope=" + scope }

// TestKernelMemory: version 2 has the kernel's memory in the sample, and version 1 in the limits.
func TestKernelMemory(t *testing.T) {
	for _, c := range []struct{ sample, limits, want int64 }{{18, -1, 18}, {-1, 19, 19}, {-1, 0, 0}, {-1, -1, -1}} {
		r := &row{Measured: &Measured{}, limits: cgroup.Limits{KernelMemory: c.limits}}
		r.Kernel = c.sample
		if got := kernelMemory(r); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
