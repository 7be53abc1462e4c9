// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import compbasemetrics "k8s.io/component-base/metrics"

// kubelet is the subsystem of the metrics of /metrics.
const kubelet = "kubelet"

// Upstream's buckets.
var (
	startBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	pullBuckets  = []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
)

// sizes are the values of the label image_size_in_bytes, by the size that an image is larger than.
var sizes = []struct {
	above uint64
	label string
}{
	{100 << 30, "GT100GB"}, {60 << 30, "60GB-100GB"}, {40 << 30, "40GB-60GB"}, {30 << 30, "30GB-40GB"},
	{20 << 30, "20GB-30GB"}, {10 << 30, "10GB-20GB"}, {5 << 30, "5GB-10GB"}, {1 << 30, "1GB-5GB"},
	{500 << 20, "500MB-1GB"}, {100 << 20, "100MB-500MB"}, {10 << 20, "10MB-100MB"}, {0, "0-10MB"},
}

// sizeLabel returns the label of an image's size; empty if the size is unknown.
func sizeLabel(size uint64) string {
	for _, s := range sizes {
		if size > s.above {
			return s.label
		}
	}
	return ""
}

func counter(r compbasemetrics.KubeRegistry, name, help string) *compbasemetrics.Counter {
	c := compbasemetrics.NewCounter(&compbasemetrics.CounterOpts{Subsystem: kubelet, Name: name, Help: help, StabilityLevel: compbasemetrics.ALPHA})
	r.MustRegister(c)
	return c
}

func counters(r compbasemetrics.KubeRegistry, name, help string, labels ...string) *compbasemetrics.CounterVec {
	c := compbasemetrics.NewCounterVec(&compbasemetrics.CounterOpts{Subsystem: kubelet, Name: name, Help: help, StabilityLevel: compbasemetrics.ALPHA}, labels)
	r.MustRegister(c)
	return c
}

func gauge(r compbasemetrics.KubeRegistry, name, help string) *compbasemetrics.Gauge {
	g := compbasemetrics.NewGauge(&compbasemetrics.GaugeOpts{Subsystem: kubelet, Name: name, Help: help, StabilityLevel: compbasemetrics.ALPHA})
	r.MustRegister(g)
	return g
}

func histogram(r compbasemetrics.KubeRegistry, name, help string, buckets []float64) *compbasemetrics.Histogram {
	h := compbasemetrics.NewHistogram(&compbasemetrics.HistogramOpts{Subsystem: kubelet, Name: name, Help: help, Buckets: buckets, StabilityLevel: compbasemetrics.ALPHA})
	r.MustRegister(h)
	return h
}

func histograms(r compbasemetrics.KubeRegistry, name, help string, buckets []float64, labels ...string) *compbasemetrics.HistogramVec {
	return histogramsOf(r, kubelet, name, help, buckets, labels...)
}

func histogramsOf(r compbasemetrics.KubeRegistry, subsystem, name, help string, buckets []float64, labels ...string) *compbasemetrics.HistogramVec {
	h := compbasemetrics.NewHistogramVec(&compbasemetrics.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets, StabilityLevel: compbasemetrics.ALPHA}, labels)
	r.MustRegister(h)
	return h
}
