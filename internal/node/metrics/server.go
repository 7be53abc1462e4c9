// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"slices"
	"strings"

	compbasemetrics "k8s.io/component-base/metrics"
)

var requestLabels = []string{"method", "path", "server_type", "long_running"}

func (m *Metrics) addServer() {
	m.requests = counters(m.registry, "http_requests_total", "Number of the http requests received since the server started", requestLabels...)
	m.requestDuration = histograms(m.registry, "http_requests_duration_seconds", "Duration in seconds to serve http requests", compbasemetrics.DefBuckets, requestLabels...)
	m.requestsInFlight = compbasemetrics.NewGaugeVec(&compbasemetrics.GaugeOpts{
		Subsystem: kubelet, Name: "http_inflight_requests", Help: "Number of the inflight http requests", StabilityLevel: compbasemetrics.ALPHA,
	}, requestLabels)
	m.registry.MustRegister(m.requestsInFlight)
}

// Observe counts and measures the requests of a server, "readwrite" or "readonly".
func (m *Metrics) Observe(server string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		labels := []string{methodLabel(r.Method), pathLabel(r.URL.Path), server, longRunning(r.URL.Path)}
		inFlight := m.requestsInFlight.WithLabelValues(labels...)
		inFlight.Inc()
		defer inFlight.Dec()
		m.requests.WithLabelValues(labels...).Inc()
		start := m.clock.Now()
		defer func() { m.requestDuration.WithLabelValues(labels...).Observe(m.clock.Since(start).Seconds()) }()
		next.ServeHTTP(w, r)
	})
}

var (
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}
	paths   = []string{
		"healthz", "pods", "stats", "metrics", "run", "exec", "attach", "portForward", "containerLogs", "configz", "runningpods",
		"checkpoint", "pprof", "logs", "debug", "statusz", "flagz",
	}
	metricPaths = []string{"cadvisor", "probes", "resource"}
)

func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

// pathLabel returns the first part of a path, and the second of a path of metrics. A path that is not served is "other".
func pathLabel(path string) string {
	first, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	switch {
	case first == "metrics" && slices.Contains(metricPaths, rest):
		return first + "/" + rest
	case slices.Contains(paths, first):
		return first
	}
	return "other"
}

func longRunning(path string) string {
	first, _, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if slices.Contains([]string{"exec", "attach", "portForward", "debug"}, first) {
		return "true"
	}
	return "false"
}
