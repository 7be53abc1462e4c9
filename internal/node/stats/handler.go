// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/klog/v2"
)

// Path is the path of the endpoint.
const Path = "/metrics/resource"

// Handler serves the samples of a source under upstream's metric names
// (https://kubernetes.io/docs/reference/instrumentation/metrics/).
func Handler(read Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		summary, err := read(r.Context())
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Cannot measure what the node and its pods use")
		}
		format := expfmt.Negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		encoder := expfmt.NewEncoder(w, format)
		for _, family := range families(summary, err != nil) {
			if encoder.Encode(family) != nil {
				return // the client is gone
			}
		}
	})
}

// families returns the metrics of a summary, sorted by name. failed reports that the summary is
// incomplete.
func families(summary Summary, failed bool) []*dto.MetricFamily {
	started := family("container_start_time_seconds", "Start time of the container since unix epoch in seconds", dto.MetricType_GAUGE)
	containers := newUsage("container", "the container")
	pods := newUsage("pod", "the pod")
	node := newUsage("node", "the node")
	if summary.Node != nil {
		node.add(*summary.Node)
	}
	for _, pod := range summary.Pods {
		namespace, name := label("namespace", pod.Namespace), label("pod", pod.Name)
		if pod.Usage != nil {
			pods.add(*pod.Usage, namespace, name)
		}
		for _, c := range pod.Containers {
			container := label("container", c.Name)
			containers.add(c.Usage, container, namespace, name)
			if !c.Started.IsZero() {
				add(started, seconds(c.Started), time.Time{}, container, namespace, name)
			}
		}
	}
	scrape := family("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", dto.MetricType_GAUGE)
	failure := 0.0
	if failed {
		failure = 1
	}
	add(scrape, failure, time.Time{})
	all := []*dto.MetricFamily{
		containers.cpu, containers.memory, started, containers.swap, node.cpu, node.memory, node.swap,
		pods.cpu, pods.memory, pods.swap, scrape,
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
}

// usage is the three families of one kind of thing.
type usage struct{ cpu, memory, swap *dto.MetricFamily }

func newUsage(prefix, what string) usage {
	return usage{
		cpu:    family(prefix+"_cpu_usage_seconds_total", "Cumulative cpu time consumed by "+what+" in core-seconds", dto.MetricType_COUNTER),
		memory: family(prefix+"_memory_working_set_bytes", "Current working set of "+what+" in bytes", dto.MetricType_GAUGE),
		swap:   alpha(family(prefix+"_swap_usage_bytes", swapHelp(prefix, what), dto.MetricType_GAUGE)),
	}
}

// swapHelp returns upstream's text, which differs by kind.
func swapHelp(prefix, what string) string {
	if prefix == "container" {
		return "Current amount of the container swap usage in bytes. Reported only on non-windows systems"
	}
	if prefix == "pod" {
		return "Current amount of the pod swap usage in bytes. Reported only on non-windows systems"
	}
	return "Current swap usage of " + what + " in bytes. Reported only on non-windows systems"
}

// alpha marks a family as unstable.
func alpha(f *dto.MetricFamily) *dto.MetricFamily {
	f.Help = new(strings.Replace(f.GetHelp(), "[STABLE]", "[ALPHA]", 1))
	return f
}

func (u usage) add(sample Usage, labels ...*dto.LabelPair) {
	add(u.cpu, sample.CPU.Seconds(), sample.Time, labels...)
	add(u.memory, float64(sample.Memory), sample.Time, labels...)
	if sample.Swap != nil {
		add(u.swap, float64(*sample.Swap), sample.Time, labels...)
	}
}

// family returns a family whose help text names its stability, as component-base writes it.
func family(name, help string, kind dto.MetricType) *dto.MetricFamily {
	return &dto.MetricFamily{Name: new(name), Help: new("[STABLE] " + help), Type: kind.Enum()}
}

// add adds a value to a family, with a timestamp unless it is zero.
func add(to *dto.MetricFamily, value float64, at time.Time, labels ...*dto.LabelPair) {
	metric := &dto.Metric{Label: labels}
	if to.GetType() == dto.MetricType_COUNTER {
		metric.Counter = &dto.Counter{Value: &value}
	} else {
		metric.Gauge = &dto.Gauge{Value: &value}
	}
	if !at.IsZero() {
		metric.TimestampMs = new(at.UnixMilli())
	}
	to.Metric = append(to.Metric, metric)
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / float64(time.Second) }
