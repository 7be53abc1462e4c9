// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
)

// Metrics counts what an agent does.
type Metrics struct {
	clock            clock.PassiveClock
	registry, probes compbasemetrics.KubeRegistry

	operations, operationErrors               *compbasemetrics.CounterVec
	operationDuration                         *compbasemetrics.HistogramVec
	sandboxDuration                           *compbasemetrics.HistogramVec
	sandboxErrors                             *compbasemetrics.CounterVec
	startedPods, startedPodErrors             *compbasemetrics.Counter
	startedContainers, startedContainerErrors *compbasemetrics.CounterVec
	terminatedContainers                      *compbasemetrics.CounterVec
	workerDuration                            *compbasemetrics.HistogramVec
	startDuration                             *compbasemetrics.Histogram
	totalStartDuration                        *compbasemetrics.HistogramVec
	relistDuration, relistInterval            *compbasemetrics.Histogram
	lastRelist                                *compbasemetrics.Gauge
	pullDuration                              *compbasemetrics.HistogramVec
	ensuredImages                             *compbasemetrics.CounterVec
	rejections, evictions, preemptions        *compbasemetrics.CounterVec
	requests                                  *compbasemetrics.CounterVec
	requestDuration                           *compbasemetrics.HistogramVec
	requestsInFlight                          *compbasemetrics.GaugeVec
	probeResults                              *compbasemetrics.CounterVec
	probeDuration                             *compbasemetrics.HistogramVec

	podLifecycle
	allocations
	storage
	managers
	podsAPI
}

// New returns the metrics of a node's agent.
func New(node string, cgroupVersion int, clock clock.PassiveClock) *Metrics {
	m := &Metrics{clock: clock, registry: compbasemetrics.NewKubeRegistry(), probes: compbasemetrics.NewKubeRegistry()}
	m.registry.RawMustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		constant("kubelet_node_name", "The node's name. The count is always 1.", 1, prometheus.Labels{"node": node}),
		constant("kubelet_cgroup_version", "cgroup version on the hosts.", float64(cgroupVersion), nil),
		constant("kubernetes_build_info", "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.", 1, buildLabels(version.Get())),
	)
	m.addRuntime()
	m.addPods()
	m.addLifecycle()
	m.addAllocations()
	m.addStorage()
	m.addManagers()
	m.addPodsAPI()
	m.addServer()
	m.addProbes()
	return m
}

// buildLabels are the labels of kubernetes_build_info, with which monitoring compares the versions of components.
func buildLabels(info apiversion.Info) prometheus.Labels {
	return prometheus.Labels{
		"major": info.Major, "minor": info.Minor, "git_version": info.GitVersion, "git_commit": info.GitCommit,
		"git_tree_state": info.GitTreeState, "build_date": info.BuildDate, "go_version": info.GoVersion,
		"compiler": info.Compiler, "platform": info.Platform,
	}
}

// constant returns a gauge that does not change.
func constant(name, help string, value float64, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: "[ALPHA] " + help, ConstLabels: labels}, func() float64 { return value })
}

func (m *Metrics) addRuntime() {
	m.operations = counters(m.registry, "runtime_operations_total", "Cumulative number of runtime operations by operation type.", "operation_type")
	m.operationErrors = counters(m.registry, "runtime_operations_errors_total", "Cumulative number of runtime operation errors by operation type.", "operation_type")
	m.operationDuration = histograms(m.registry, "runtime_operations_duration_seconds", "Duration in seconds of runtime operations. Broken down by operation type.",
		compbasemetrics.ExponentialBuckets(.005, 2.5, 14), "operation_type")
	m.sandboxDuration = histograms(m.registry, "run_podsandbox_duration_seconds", "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
		compbasemetrics.DefBuckets, "runtime_handler")
	m.sandboxErrors = counters(m.registry, "run_podsandbox_errors_total", "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.", "runtime_handler")
	m.relistDuration = histogram(m.registry, "pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", compbasemetrics.DefBuckets)
	m.relistInterval = histogram(m.registry, "pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", compbasemetrics.DefBuckets)
	m.lastRelist = gauge(m.registry, "pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active.")
	m.pullDuration = histograms(m.registry, "image_pull_duration_seconds", "Duration in seconds to pull an image.", pullBuckets, "image_size_in_bytes")
	m.ensuredImages = counters(m.registry, "image_manager_ensure_image_requests_total", "Number of ensure-image requests processed by the kubelet.",
		"pull_policy", "present_locally", "pull_required")
}

func (m *Metrics) addPods() {
	m.startedPods = counter(m.registry, "started_pods_total", "Cumulative number of pods started")
	m.startedPodErrors = counter(m.registry, "started_pods_errors_total", "Cumulative number of errors when starting pods")
	m.startedContainers = counters(m.registry, "started_containers_total", "Cumulative number of containers started", "container_type")
	m.startedContainerErrors = counters(m.registry, "started_containers_errors_total", "Cumulative number of errors when starting containers", "container_type", "code")
	m.terminatedContainers = counters(m.registry, "terminated_containers_total", "Cumulative number of container terminations.", "container_type", "exit_code", "reason")
	m.workerDuration = histograms(m.registry, "pod_worker_duration_seconds", "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
		compbasemetrics.DefBuckets, "operation_type")
	m.startDuration = histogram(m.registry, "pod_start_duration_seconds", "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", startBuckets)
	m.totalStartDuration = histograms(m.registry, "pod_start_total_duration_seconds",
		"Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch", startBuckets)
	m.rejections = counters(m.registry, "admission_rejections_total", "Cumulative number pod admission rejections by the Kubelet.", "reason")
	m.evictions = counters(m.registry, "evictions", "Cumulative number of pod evictions by eviction signal", "eviction_signal")
	m.preemptions = counters(m.registry, "preemptions", "Cumulative number of pod preemptions by preemption resource", "preemption_signal")
}

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler { return handler(m.registry) }

// Register adds collectors to /metrics.
func (m *Metrics) Register(all ...prometheus.Collector) { m.registry.RawMustRegister(all...) }

// HandlerFor serves the metrics of one collector.
func HandlerFor(c prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	return handler(registry)
}

// handler serves what could be gathered, even if a collector fails.
func handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Operation counts a call of the runtime, under upstream's name.
func (m *Metrics) Operation(name string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.operations.WithLabelValues(name).Inc()
	m.operationDuration.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.operationErrors.WithLabelValues(name).Inc()
	}
}

// SandboxRun counts the start of a sandbox, with which a pod starts. userNamespace is set if the pod has one of its own.
func (m *Metrics) SandboxRun(handler string, userNamespace bool, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.startedPods.Inc()
	if userNamespace {
		countBoth(m.namespacedPods, m.namespacedPodErrors, err)
	}
	m.sandboxDuration.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.startedPodErrors.Inc()
		m.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

// ContainerStart counts the start of a container of a type. reason is why it failed; empty if it did not.
func (m *Metrics) ContainerStart(containerType, reason string) {
	if m == nil {
		return
	}
	m.startedContainers.WithLabelValues(containerType).Inc()
	if reason != "" {
		m.startedContainerErrors.WithLabelValues(containerType, reason).Inc()
	}
}

// ContainerTerminated counts the end of a container.
func (m *Metrics) ContainerTerminated(containerType string, exitCode int32, reason string) {
	if m != nil {
		m.terminatedContainers.WithLabelValues(containerType, strconv.Itoa(int(exitCode)), reason).Inc()
	}
}

// PodSynced counts a round of a pod's worker.
func (m *Metrics) PodSynced(operation string, took time.Duration) {
	if m != nil {
		m.workerDuration.WithLabelValues(operation).Observe(took.Seconds())
	}
}

// PodStarted counts a pod that runs: the time since the agent saw it first, and since its creation.
func (m *Metrics) PodStarted(sinceSeen, sinceCreated time.Duration) {
	if m == nil {
		return
	}
	m.startDuration.Observe(sinceSeen.Seconds())
	m.totalStartDuration.WithLabelValues().Observe(sinceCreated.Seconds())
}

// Relisted counts a comparison of the API with the runtime. since is the time since the one before; 0 for the first.
func (m *Metrics) Relisted(at time.Time, took, since time.Duration) {
	if m == nil {
		return
	}
	m.relistDuration.Observe(took.Seconds())
	if since > 0 {
		m.relistInterval.Observe(since.Seconds())
	}
	m.lastRelist.Set(seconds(at))
}

// ImagePulled counts a pull of an image.
func (m *Metrics) ImagePulled(size uint64, took time.Duration) {
	if m != nil {
		m.pullDuration.WithLabelValues(sizeLabel(size)).Observe(took.Seconds())
	}
}

// ImageEnsured counts a request to make an image present. present and pull are nil if that is unknown.
func (m *Metrics) ImageEnsured(policy v1.PullPolicy, present, pull *bool) {
	if m != nil {
		m.ensuredImages.WithLabelValues(strings.ToLower(string(policy)), orUnknown(present), orUnknown(pull)).Inc()
	}
}

func orUnknown(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return strconv.FormatBool(*b)
}

// Rejected counts a pod that the node did not admit.
func (m *Metrics) Rejected(reason string) {
	if m != nil {
		m.rejections.WithLabelValues(reason).Inc()
	}
}

// Evicted counts a pod that was evicted because of a signal, such as "memory.available".
func (m *Metrics) Evicted(signal string) {
	if m != nil {
		m.evictions.WithLabelValues(signal).Inc()
	}
}

// Preempted counts a pod that was evicted in order to admit a critical pod, because of a resource such as "cpu".
func (m *Metrics) Preempted(signal string) {
	if m != nil {
		m.preemptions.WithLabelValues(signal).Inc()
	}
}
