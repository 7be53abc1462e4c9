// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Requests counts the requests of clients of the API, under the names of client-go. client-go itself counts those of all
// clients of the process together. It is a collector.
type Requests struct {
	clock          clock.PassiveClock
	total          *prometheus.CounterVec
	duration, size *prometheus.HistogramVec
}

// NewRequests returns the counter of the requests of clients whose transport [Requests.Wrap] returned.
func NewRequests(clock clock.PassiveClock) *Requests {
	return &Requests{
		clock: clock,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "[ALPHA] Number of HTTP requests, by status code, method and host.",
		}, []string{"code", "method", "host"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "[ALPHA] Time until the response to a request began, by verb and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0},
		}, []string{"verb", "host"}),
		size: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_size_bytes", Help: "[ALPHA] Size of requests, by verb and host.",
			Buckets: []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216},
		}, []string{"verb", "host"}),
	}
}

// Describe implements prometheus.Collector.
func (r *Requests) Describe(to chan<- *prometheus.Desc) {
	for _, c := range r.all() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (r *Requests) Collect(to chan<- prometheus.Metric) {
	for _, c := range r.all() {
		c.Collect(to)
	}
}

func (r *Requests) all() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.duration, r.size}
}

// Wrap returns a transport whose requests are counted.
func (r *Requests) Wrap(transport http.RoundTripper) http.RoundTripper {
	return countedTransport{transport, r}
}

type countedTransport struct {
	http.RoundTripper
	requests *Requests
}

// RoundTrip implements http.RoundTripper.
func (t countedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	begin, r := t.requests.clock.Now(), t.requests
	response, err := t.RoundTripper.RoundTrip(request)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	r.total.WithLabelValues(code, request.Method, request.URL.Host).Inc()
	r.duration.WithLabelValues(request.Method, request.URL.Host).Observe(r.clock.Since(begin).Seconds())
	if request.ContentLength >= 0 {
		r.size.WithLabelValues(request.Method, request.URL.Host).Observe(float64(request.ContentLength))
	}
	return response, err
}
