// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// reported is what a kubelet of v1.37 reports.
const reported = `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="ns",pod="p"} 1.5 1893456010123
container_cpu_usage_seconds_total{container="side",namespace="ns",pod="p"} 0.25 1893456010123
container_cpu_usage_seconds_total{container="no-memory",namespace="ns",pod="p"} 1 1893456010123
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="ns",pod="p"} 4.194304e+06 1893456010123
container_memory_working_set_bytes{container="side",namespace="ns",pod="p"} 0 1893456010123
container_memory_working_set_bytes{container="no-cpu",namespace="ns",pod="q"} 1 1893456010123
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="ns",pod="p"} 1.893456e+09
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 100
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 1024 1893456010000
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(reported), at(12))
	if err != nil {
		t.Fatal(err)
	}
	taken := at(10).Add(123 * time.Millisecond).Local()
	want := batch{node: point{at: at(12), cpu: 100 * time.Second, memory: 1024},
		pods: map[types.NamespacedName][]containerPoint{{Namespace: "ns", Name: "p"}: {
			{"app", point{at: taken, started: at(0).Local(), cpu: 1500 * time.Millisecond, memory: 4 << 20}},
			{"side", point{at: taken, cpu: 250 * time.Millisecond}},
		}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(batch{}, containerPoint{}, point{})); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

func TestParseNothing(t *testing.T) {
	got, err := parse(strings.NewReader("# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n"), at(0))
	if err != nil || !got.node.at.IsZero() || len(got.pods) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parse(strings.NewReader("<html>"), at(0)); err == nil {
		t.Error("a page that is no metrics was read")
	}
}
