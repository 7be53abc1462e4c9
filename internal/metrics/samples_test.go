// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var zero = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }

// TestSeries: usage is the average between the last two samples of one run of a container.
func TestSeries(t *testing.T) {
	sample := func(started, second int, cpu time.Duration) point {
		return point{started: at(started), at: at(second), cpu: cpu, memory: uint64(second)}
	}
	unknown := func(second int, cpu time.Duration) point { return point{at: at(second), cpu: cpu} }
	for _, test := range []struct {
		name   string
		points []point
		window time.Duration
		cpu    string
	}{
		{"one sample", []point{sample(-100, 0, time.Minute)}, 0, ""},
		{"two samples", []point{sample(-100, 0, time.Minute), sample(-100, 15, time.Minute+3*time.Second)}, 15 * time.Second, "200m"},
		{"only the last two count", []point{sample(-100, 0, 0), sample(-100, 15, time.Minute), sample(-100, 30, time.Minute)}, 15 * time.Second, "0"},
		{"a missed sample", []point{sample(-100, 0, 0), sample(-100, 30, 15*time.Second)}, 30 * time.Second, "500m"},
		{"the same sample again", []point{sample(-100, 0, 0), sample(-100, 15, 15*time.Second), sample(-100, 15, 15*time.Second)}, 15 * time.Second, "1"},
		{"just started", []point{sample(0, 9, 9*time.Second)}, 0, ""},
		{"started since the last sample of others", []point{sample(0, 12, 3*time.Second)}, 12 * time.Second, "250m"},
		{"restarted", []point{sample(-100, 0, time.Minute), sample(10, 15, time.Second)}, 0, ""},
		{"restarted long enough ago", []point{sample(-100, 0, time.Minute), sample(3, 15, 6*time.Second)}, 12 * time.Second, "500m"},
		{"a counter that was reset", []point{unknown(0, time.Minute), unknown(15, time.Second)}, 0, ""},
		{"unknown start", []point{unknown(0, time.Minute), unknown(15, time.Minute+15*time.Second)}, 15 * time.Second, "1"},
		{"nanocores", []point{unknown(0, 0), unknown(15, 15*time.Nanosecond)}, 15 * time.Second, "1n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s series
			for _, p := range test.points {
				s = s.then(p)
			}
			if s.window() != test.window {
				t.Fatalf("window is %v, want %v", s.window(), test.window)
			}
			if test.window == 0 {
				return
			}
			usage := s.usage()
			last := test.points[len(test.points)-1]
			if cpu := usage.Cpu().String(); cpu != test.cpu || uint64(usage.Memory().Value()) != last.memory {
				t.Errorf("uses %v, want CPU %s and memory %d", usage, test.cpu, last.memory)
			}
		})
	}
}

// TestHistory: what a node no longer reports is forgotten.
func TestHistory(t *testing.T) {
	one, two := types.NamespacedName{Namespace: "ns", Name: "one"}, types.NamespacedName{Namespace: "ns", Name: "two"}
	reported := func(second int, pods ...types.NamespacedName) batch {
		b := batch{node: point{at: at(second)}, pods: map[types.NamespacedName][]containerPoint{}}
		for _, pod := range pods {
			b.pods[pod] = []containerPoint{{"c", point{at: at(second)}}}
		}
		return b
	}
	var h history
	h = h.then(reported(0, one)).then(reported(15, one, two))
	if h.node.window() != Interval || h.of(one, "c").window() != Interval || h.of(two, "c").window() != 0 {
		t.Errorf("after two batches: %+v", h)
	}
	h = h.then(reported(30, two))
	if _, ok := h.pods[one]; ok || h.of(two, "c").window() != Interval {
		t.Errorf("after the third: %+v", h)
	}
}
