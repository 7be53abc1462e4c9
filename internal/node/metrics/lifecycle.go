// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync/atomic"
	"time"

	compbasemetrics "k8s.io/component-base/metrics"
)

// podLifecycle are the metrics of how pods start and end, and of the node's own start and end.
type podLifecycle struct {
	slis                                 *compbasemetrics.HistogramVec
	firstNetworkPod                      *compbasemetrics.Gauge
	hasNetworkPod                        atomic.Bool
	workerStart, statusSync              *compbasemetrics.Histogram
	containersPerPod                     *compbasemetrics.Histogram
	orphans                              *compbasemetrics.Counter
	namespacedPods, namespacedPodErrors  *compbasemetrics.Counter
	cgroupOperations, statsAge           *compbasemetrics.HistogramVec
	removedImages                        *compbasemetrics.CounterVec
	hookFallbacks, interruptedSleeps     *compbasemetrics.Counter
	shutdownStart, shutdownEnd           *compbasemetrics.Gauge
	beforeAgent, beforeRegistration      *compbasemetrics.Gauge
	registration, afterRegistration, all *compbasemetrics.Gauge
}

func (m *Metrics) addLifecycle() {
	r, l := m.registry, &m.podLifecycle
	l.slis = histograms(r, "pod_start_sli_duration_seconds", "Time from the creation of a pod until all its containers run, without image pulls and init containers.", startBuckets)
	l.firstNetworkPod = gauge(r, "first_network_pod_start_sli_duration_seconds", "Like pod_start_sli_duration_seconds, of the first pod that is not in the host's network.")
	l.workerStart = histogram(r, "pod_worker_start_duration_seconds", "Time from when the node's agent saw a pod until its worker started.", compbasemetrics.DefBuckets)
	l.statusSync = histogram(r, "pod_status_sync_duration_seconds", "Time from a change of a pod's status until the API has it.", []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60})
	l.containersPerPod = histogram(r, "containers_per_pod_count", "The number of containers of each new pod.", compbasemetrics.ExponentialBuckets(1, 2, 5))
	l.orphans = counter(r, "orphaned_runtime_pods_total", "Number of pods that the runtime had, and neither the API nor the configuration.")
	l.namespacedPods = counter(r, "started_user_namespaced_pods_total", "Cumulative number of pods with user namespaces started.")
	l.namespacedPodErrors = counter(r, "started_user_namespaced_pods_errors_total", "Cumulative number of errors when starting pods with user namespaces.")
	l.cgroupOperations = histograms(r, "cgroup_manager_duration_seconds", "Duration of operations on pod cgroups.", compbasemetrics.DefBuckets, "operation_type")
	l.statsAge = histograms(r, "eviction_stats_age_seconds", "Age of the measurement by which a pod was evicted.", compbasemetrics.DefBuckets, "eviction_signal")
	l.removedImages = counters(r, "image_garbage_collected_total", "Number of unused images that were removed, by reason: age or space.", "reason")
	l.hookFallbacks = counter(r, "lifecycle_handler_http_fallbacks_total", "The number of times lifecycle handlers successfully fell back to http from https.")
	l.interruptedSleeps = counter(r, "sleep_action_terminated_early_total", "The number of times lifecycle sleep handler got terminated before it finishes")
	l.shutdownStart = gauge(r, "graceful_shutdown_start_time_seconds", "When the last graceful shutdown began, in seconds since the epoch.")
	l.shutdownEnd = gauge(r, "graceful_shutdown_end_time_seconds", "When the last graceful shutdown was complete, in seconds since the epoch.")
	l.beforeAgent = gauge(r, "node_startup_pre_kubelet_duration_seconds", "Time from the boot of the machine until the agent started.")
	l.beforeRegistration = gauge(r, "node_startup_pre_registration_duration_seconds", "Time from the start of the agent until it began to register the node.")
	l.registration = gauge(r, "node_startup_registration_duration_seconds", "Time that the registration of a new node took.")
	l.afterRegistration = gauge(r, "node_startup_post_registration_duration_seconds", "Time from the registration of a new node until it was ready.")
	l.all = gauge(r, "node_startup_duration_seconds", "Time from the boot of the machine until a new node was ready.")
}

// PodStartedSLI counts a pod without volumes that outlive it, whose containers all run. took excludes image pulls and init
// containers.
func (m *Metrics) PodStartedSLI(took time.Duration, hostNetwork bool) {
	if m == nil {
		return
	}
	m.slis.WithLabelValues().Observe(took.Seconds())
	if !hostNetwork && m.hasNetworkPod.CompareAndSwap(false, true) {
		m.firstNetworkPod.Set(took.Seconds())
	}
}

// WorkerStarted counts a new pod: the time since the agent saw it, and its containers.
func (m *Metrics) WorkerStarted(sinceSeen time.Duration, containers int) {
	if m == nil {
		return
	}
	m.workerStart.Observe(sinceSeen.Seconds())
	m.containersPerPod.Observe(float64(containers))
}

// StatusWritten counts a status that the API has, by the time since it changed.
func (m *Metrics) StatusWritten(sinceChange time.Duration) {
	if m != nil {
		m.statusSync.Observe(sinceChange.Seconds())
	}
}

// OrphanFound counts a pod that only the runtime has.
func (m *Metrics) OrphanFound() {
	if m != nil {
		m.orphans.Inc()
	}
}

// CgroupOperation measures an operation on a pod's cgroup ("create", "update" or "destroy") until done is called.
func (m *Metrics) CgroupOperation(operation string) (done func()) {
	if m == nil {
		return func() {}
	}
	begin := m.clock.Now()
	return func() { m.cgroupOperations.WithLabelValues(operation).Observe(m.clock.Since(begin).Seconds()) }
}

// EvictedBy counts the measurement by which a pod was evicted.
func (m *Metrics) EvictedBy(signal string, age time.Duration) {
	if m != nil {
		m.statsAge.WithLabelValues(signal).Observe(age.Seconds())
	}
}

// ImageRemoved counts an unused image that was removed because of "age" or "space".
func (m *Metrics) ImageRemoved(reason string) {
	if m != nil {
		m.removedImages.WithLabelValues(reason).Inc()
	}
}

// HookFellBack counts a lifecycle hook whose HTTPS request succeeded in plain HTTP.
func (m *Metrics) HookFellBack() {
	if m != nil {
		m.hookFallbacks.Inc()
	}
}

// SleepInterrupted counts a lifecycle hook that did not sleep as long as it was to.
func (m *Metrics) SleepInterrupted() {
	if m != nil {
		m.interruptedSleeps.Inc()
	}
}

// ShuttingDown records when a graceful shutdown began and, unless it still goes on, when it was complete.
func (m *Metrics) ShuttingDown(begin, end time.Time) {
	if m == nil {
		return
	}
	m.shutdownStart.Set(seconds(begin))
	m.shutdownEnd.Set(seconds(end))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}

// Startup measures how a new node gets ready. It does not measure a node that registers again. A nil Startup measures nothing.
type Startup struct {
	metrics                      *Metrics
	boot, started                time.Time
	attempted, registered, ready atomic.Pointer[time.Time]
}

// Startup returns the measurement of an agent that starts now. boot is when the machine was started; zero if it is unknown.
func (m *Metrics) Startup(boot time.Time) *Startup {
	return &Startup{metrics: m, boot: boot, started: m.clock.Now()}
}

// Attempted notes the first attempt to register the node.
func (s *Startup) Attempted() {
	if s != nil {
		s.note(&s.attempted)
	}
}

// Registered notes that the node was created.
func (s *Startup) Registered() {
	if s == nil {
		return
	}
	attempted := s.attempted.Load()
	if attempted == nil || !s.note(&s.registered) {
		return
	}
	m := s.metrics
	if !s.boot.IsZero() {
		m.beforeAgent.Set(s.started.Sub(s.boot).Seconds())
	}
	m.beforeRegistration.Set(attempted.Sub(s.started).Seconds())
	m.registration.Set(s.registered.Load().Sub(*attempted).Seconds())
}

// Ready notes that the node is ready.
func (s *Startup) Ready() {
	if s == nil {
		return
	}
	registered := s.registered.Load()
	if registered == nil || !s.note(&s.ready) {
		return
	}
	ready := *s.ready.Load()
	s.metrics.afterRegistration.Set(ready.Sub(*registered).Seconds())
	if !s.boot.IsZero() {
		s.metrics.all.Set(ready.Sub(s.boot).Seconds())
	}
}

// note stores the current time unless one is stored, and reports whether it did.
func (s *Startup) note(at *atomic.Pointer[time.Time]) bool {
	now := s.metrics.clock.Now()
	return at.CompareAndSwap(nil, &now)
}
