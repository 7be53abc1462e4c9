// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"io"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
)

// The metrics of a node that are read. They are stable (KEP-1206).
const (
	nodeCPU          = "node_cpu_usage_seconds_total"
	nodeMemory       = "node_memory_working_set_bytes"
	containerCPU     = "container_cpu_usage_seconds_total"
	containerMemory  = "container_memory_working_set_bytes"
	containerStarted = "container_start_time_seconds"
)

// parse reads a batch in the Prometheus text format. Samples without timestamp were taken now. Of a
// container, both CPU and memory must be reported.
func parse(text io.Reader, now time.Time) (batch, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return batch{}, fmt.Errorf("parse metrics: %w", err)
	}
	b := batch{pods: map[types.NamespacedName][]containerPoint{}}
	memory := single(families[nodeMemory])
	if cpu := single(families[nodeCPU]); cpu != nil && memory != nil {
		b.node = point{at: timeOf(cpu, now), cpu: duration(cpu), memory: uint64(valueOf(memory))}
	}
	used, started := valuesOf(families[containerMemory]), valuesOf(families[containerStarted])
	for _, m := range families[containerCPU].GetMetric() {
		of := subjectOf(m)
		memory, ok := used[of]
		if !ok {
			continue
		}
		p := point{at: timeOf(m, now), cpu: duration(m), memory: uint64(memory)}
		if seconds, ok := started[of]; ok {
			p.started = time.Unix(0, int64(seconds*float64(time.Second)))
		}
		b.pods[of.pod] = append(b.pods[of.pod], containerPoint{of.container, p})
	}
	return b, nil
}

func single(family *dto.MetricFamily) *dto.Metric {
	if len(family.GetMetric()) == 0 {
		return nil
	}
	return family.Metric[0]
}

// subject is what a metric is about.
type subject struct {
	pod       types.NamespacedName
	container string
}

func subjectOf(m *dto.Metric) subject {
	var of subject
	for _, label := range m.Label {
		switch label.GetName() {
		case "namespace":
			of.pod.Namespace = label.GetValue()
		case "pod":
			of.pod.Name = label.GetValue()
		case "container":
			of.container = label.GetValue()
		}
	}
	return of
}

func valuesOf(family *dto.MetricFamily) map[subject]float64 {
	values := map[subject]float64{}
	for _, m := range family.GetMetric() {
		values[subjectOf(m)] = valueOf(m)
	}
	return values
}

func timeOf(m *dto.Metric, now time.Time) time.Time {
	if m.TimestampMs == nil {
		return now
	}
	return time.UnixMilli(m.GetTimestampMs())
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.GetUntyped().GetValue()
}

func duration(m *dto.Metric) time.Duration {
	return time.Duration(math.Round(valueOf(m) * float64(time.Second)))
}
