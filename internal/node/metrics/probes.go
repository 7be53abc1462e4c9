// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	compbasemetrics "k8s.io/component-base/metrics"
)

// The results of an attempt.
const (
	ProbeSuccessful = "successful"
	ProbeFailed     = "failed"
	ProbeUnknown    = "unknown"
)

func (m *Metrics) addProbes() {
	m.probeResults = compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Subsystem: "prober", Name: "probe_total", Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
		StabilityLevel: compbasemetrics.BETA,
	}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"})
	m.probeDuration = compbasemetrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
		Subsystem: "prober", Name: "probe_duration_seconds", Help: "Duration in seconds for a probe response.", StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"probe_type", "container", "pod", "namespace"})
	m.probes.MustRegister(m.probeResults, m.probeDuration)
	// A process whose start is unknown has no such metric.
	_ = compbasemetrics.RegisterProcessStartTime(m.probes.Register)
}

// ProbesHandler serves /metrics/probes.
func (m *Metrics) ProbesHandler() http.Handler { return handler(m.probes) }

// Probed counts an attempt of a probe ("Liveness").
func (m *Metrics) Probed(kind string, pod *v1.Pod, container, result string, took time.Duration) {
	if m == nil {
		return
	}
	m.probeResults.WithLabelValues(kind, result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
	if result == ProbeSuccessful {
		m.probeDuration.WithLabelValues(kind, container, pod.Name, pod.Namespace).Observe(took.Seconds())
	}
}

// PodRemoved drops what was counted of a pod's probes.
func (m *Metrics) PodRemoved(pod *v1.Pod) {
	if m == nil {
		return
	}
	labels := prometheus.Labels{"pod": pod.Name, "namespace": pod.Namespace}
	m.probeDuration.DeletePartialMatch(labels)
	labels["pod_uid"] = string(pod.UID)
	m.probeResults.DeletePartialMatch(labels)
}
