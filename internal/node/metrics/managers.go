// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"
	"time"

	"google.golang.org/grpc"
	compbasemetrics "k8s.io/component-base/metrics"
)

// managers are the metrics of what assigns devices, CPUs and memory to containers.
type managers struct {
	pluginRegistrations         *compbasemetrics.CounterVec
	pluginAllocations           *compbasemetrics.HistogramVec
	cpuPinnings, cpuErrors      *compbasemetrics.Counter
	memoryPinnings, memoryErrs  *compbasemetrics.Counter
	alignments, alignmentErrors *compbasemetrics.Counter
	alignmentDuration           *compbasemetrics.Histogram
	aligned, notAligned         *compbasemetrics.CounterVec
	claimOperations, draCalls   *compbasemetrics.HistogramVec
	podResources                map[string]*compbasemetrics.CounterVec
}

// The metrics of the PodResources API by method.
var podResourcesMethods = map[string]string{"List": "list", "Get": "get", "GetAllocatableResources": "get_allocatable"}

func (m *Metrics) addManagers() {
	r := m.registry
	m.pluginRegistrations = counters(r, "device_plugin_registration_total", "Number of registrations of device plugins.", "resource_name")
	m.pluginAllocations = histograms(r, "device_plugin_alloc_duration_seconds", "Duration of Allocate calls of device plugins.", compbasemetrics.DefBuckets, "resource_name")
	m.cpuPinnings = counter(r, "cpu_manager_pinning_requests_total", "Number of containers that asked for CPUs of their own.")
	m.cpuErrors = counter(r, "cpu_manager_pinning_errors_total", "Number of containers that asked for CPUs of their own and could not get them.")
	m.memoryPinnings = counter(r, "memory_manager_pinning_requests_total", "Number of containers that asked for memory of NUMA nodes.")
	m.memoryErrs = counter(r, "memory_manager_pinning_errors_total", "Number of containers that asked for memory of NUMA nodes and could not get it.")
	m.alignments = counter(r, "topology_manager_admission_requests_total", "Number of pods whose resources were to be aligned.")
	m.alignmentErrors = counter(r, "topology_manager_admission_errors_total", "Number of pods whose resources could not be aligned.")
	m.alignmentDuration = histogram(r, "topology_manager_admission_duration_ms", "Duration in milliseconds of aligning the resources of a pod.", compbasemetrics.ExponentialBuckets(.05, 2, 15))
	m.aligned = counters(r, "container_aligned_compute_resources_count", "Cumulative number of aligned compute resources allocated to containers by alignment type.", "scope", "boundary")
	m.notAligned = counters(r, "container_aligned_compute_resources_failure_count", "Cumulative number of failures to allocate aligned compute resources to containers by alignment type.", "scope", "boundary")
	draBuckets := compbasemetrics.ExponentialBucketsRange(.1, 40, 15)
	m.claimOperations = histogramsOf(r, "dra", "operations_duration_seconds", "Duration of handling all ResourceClaims of a pod.", draBuckets, "operation_name", "is_error")
	m.draCalls = histogramsOf(r, "dra", "grpc_operations_duration_seconds", "Duration of calls of DRA drivers.", draBuckets, "driver_name", "method_name", "grpc_status_code")
	m.podResources = map[string]*compbasemetrics.CounterVec{
		"": counters(r, "pod_resources_endpoint_requests_total", "Number of requests to the PodResources API.", "server_api_version"),
	}
	for _, name := range podResourcesMethods {
		for _, kind := range []string{"requests_", "errors_"} {
			m.podResources[kind+name] = counters(r, "pod_resources_endpoint_"+kind+name, "Number of "+kind[:len(kind)-1]+" of a method of the PodResources API.", "server_api_version")
		}
	}
}

// PluginRegistered counts the registration of a device plugin.
func (m *Metrics) PluginRegistered(resource string) {
	if m != nil {
		m.pluginRegistrations.WithLabelValues(resource).Inc()
	}
}

// DevicesAllocated counts a call of a device plugin that allocates devices.
func (m *Metrics) DevicesAllocated(resource string, took time.Duration) {
	if m != nil {
		m.pluginAllocations.WithLabelValues(resource).Observe(took.Seconds())
	}
}

// CPUsPinned counts a container that asks for CPUs of its own. err is why it does not get them.
func (m *Metrics) CPUsPinned(err error) {
	if m != nil {
		countBoth(m.cpuPinnings, m.cpuErrors, err)
	}
}

// MemoryPinned counts a container that asks for memory of NUMA nodes. err is why it does not get it.
func (m *Metrics) MemoryPinned(err error) {
	if m != nil {
		countBoth(m.memoryPinnings, m.memoryErrs, err)
	}
}

// PodAligned counts a pod whose resources are to be aligned. err is why they are not.
func (m *Metrics) PodAligned(took time.Duration, err error) {
	if m == nil {
		return
	}
	countBoth(m.alignments, m.alignmentErrors, err)
	m.alignmentDuration.Observe(float64(took.Microseconds()) / 1000)
}

// Aligned counts containers or pods, by scope, whose resources are within a boundary, such as "numa_node".
func (m *Metrics) Aligned(scope, boundary string, count int) {
	if m != nil {
		m.aligned.WithLabelValues(scope, boundary).Add(float64(count))
	}
}

// NotAligned counts containers or pods, by scope, that are refused because their resources cannot be within a boundary.
func (m *Metrics) NotAligned(scope, boundary string, count int) {
	if m != nil {
		m.notAligned.WithLabelValues(scope, boundary).Add(float64(count))
	}
}

func countBoth(requests, errors *compbasemetrics.Counter, err error) {
	requests.Inc()
	if err != nil {
		errors.Inc()
	}
}

// ClaimsHandled counts an operation on all ResourceClaims of a pod: "PrepareResources" or "UnprepareResources".
func (m *Metrics) ClaimsHandled(operation string, took time.Duration, err error) {
	if m != nil {
		m.claimOperations.WithLabelValues(operation, strconv.FormatBool(err != nil)).Observe(took.Seconds())
	}
}

// DRACalls counts the calls of a DRA driver, by the full names of the methods.
func (m *Metrics) DRACalls(driver string) grpc.UnaryClientInterceptor {
	return m.intercept(func(method string, took time.Duration, err error) {
		m.draCalls.WithLabelValues(driver, method, codeOf(err)).Observe(took.Seconds())
	})
}

// PodResourcesRequest counts a request to a method of a version of the PodResources API.
func (m *Metrics) PodResourcesRequest(version, method string, err error) {
	name, ok := podResourcesMethods[method]
	if m == nil || !ok {
		return
	}
	m.podResources[""].WithLabelValues(version).Inc()
	m.podResources["requests_"+name].WithLabelValues(version).Inc()
	if err != nil {
		m.podResources["errors_"+name].WithLabelValues(version).Inc()
	}
}
