// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// upstreamNames are the metrics that the kubelet of Kubernetes 1.37 can have in /metrics/cadvisor: those of cAdvisor's kinds of
// metrics that the kubelet includes.
const upstreamNames = `
cadvisor_version_info
container_blkio_device_usage_total
container_cpu_cfs_burst_periods_total
container_cpu_cfs_burst_seconds_total
container_cpu_cfs_periods_total
container_cpu_cfs_throttled_periods_total
container_cpu_cfs_throttled_seconds_total
container_cpu_system_seconds_total
container_cpu_usage_seconds_total
container_cpu_user_seconds_total
container_creation_time_seconds
container_file_descriptors
container_fs_inodes_free
container_fs_inodes_total
container_fs_io_cost_indebt_seconds_total
container_fs_io_cost_indelay_seconds_total
container_fs_io_cost_usage_seconds_total
container_fs_io_cost_wait_seconds_total
container_fs_io_current
container_fs_io_time_seconds_total
container_fs_io_time_weighted_seconds_total
container_fs_limit_bytes
container_fs_read_seconds_total
container_fs_reads_bytes_total
container_fs_reads_merged_total
container_fs_reads_total
container_fs_sector_reads_total
container_fs_sector_writes_total
container_fs_usage_bytes
container_fs_write_seconds_total
container_fs_writes_bytes_total
container_fs_writes_merged_total
container_fs_writes_total
container_health_state
container_last_seen
container_memory_cache
container_memory_events_high_total
container_memory_events_max_total
container_memory_failcnt
container_memory_failures_total
container_memory_file_dirty_bytes
container_memory_file_writeback_bytes
container_memory_kernel_usage
container_memory_mapped_file
container_memory_max_usage_bytes
container_memory_pgscan_total
container_memory_pgsteal_total
container_memory_rss
container_memory_swap
container_memory_total_active_file_bytes
container_memory_total_inactive_file_bytes
container_memory_usage_bytes
container_memory_working_set_bytes
container_memory_workingset_refault_anon_total
container_memory_workingset_refault_file_total
container_network_receive_bytes_total
container_network_receive_errors_total
container_network_receive_packets_dropped_total
container_network_receive_packets_total
container_network_transmit_bytes_total
container_network_transmit_errors_total
container_network_transmit_packets_dropped_total
container_network_transmit_packets_total
container_oom_events_total
container_pressure_cpu_stalled_seconds_total
container_pressure_cpu_waiting_seconds_total
container_pressure_io_stalled_seconds_total
container_pressure_io_waiting_seconds_total
container_pressure_memory_stalled_seconds_total
container_pressure_memory_waiting_seconds_total
container_processes
container_scrape_error
container_sockets
container_spec_cpu_period
container_spec_cpu_quota
container_spec_cpu_shares
container_spec_memory_limit_bytes
container_spec_memory_reservation_limit_bytes
container_spec_memory_swap_limit_bytes
container_start_time_seconds
container_threads
container_threads_max
container_ulimits_soft
machine_cpu_books
machine_cpu_cores
machine_cpu_drawers
machine_cpu_physical_cores
machine_cpu_sockets
machine_dimm_capacity_bytes
machine_dimm_count
machine_memory_bytes
machine_nvm_avg_power_budget_watts
machine_nvm_capacity
machine_scrape_error
machine_swap_bytes
`

// TestUpstreamNames: each of upstream's metrics is served or in the list of missing metrics, and not both.
func TestUpstreamNames(t *testing.T) {
	document, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(document), "\n## Missing metrics\n")
	if !found {
		t.Fatal("docs/monitoring.md has no list of missing metrics")
	}
	missing := "" // the first column of the table
	for line := range strings.Lines(section) {
		names, _, _ := strings.Cut(line, " | ")
		missing += names
	}
	served := servedNames(t)
	upstream := map[string]bool{}
	for _, name := range strings.Fields(upstreamNames) {
		upstream[name] = true
		if listed := strings.Contains(missing, "`"+name+"`"); listed == served[name] {
			t.Errorf("%s is served: %t, listed as missing: %t", name, served[name], listed)
		}
	}
	for name := range served {
		if !upstream[name] {
			t.Errorf("%s is served, and upstream does not have it", name)
		}
	}
}

// servedNames returns the names of all metrics, also of those that the cgroups of the test do not have.
func servedNames(t *testing.T) map[string]bool {
	t.Helper()
	s, _ := newSampler(t, false)
	names := map[string]bool{}
	for metric := range gather(t, s.Containers(Machine{})) {
		name, _, _ := strings.Cut(metric, " ")
		names[name] = true
	}
	var described []*prometheus.Desc
	for _, m := range containerMetrics {
		described = append(described, m.desc)
	}
	for _, m := range deviceMetrics {
		described = append(described, m.desc)
	}
	for _, m := range networkMetrics {
		described = append(described, m.desc)
	}
	quoted := regexp.MustCompile(`fqName: "(\w+)"`)
	for _, desc := range described {
		names[quoted.FindStringSubmatch(desc.String())[1]] = true
	}
	return names
}
