// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func at(seconds int64) time.Time { return time.Unix(seconds, 0) }

func scrape(t *testing.T, summary Summary, err error) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(func(context.Context) (Summary, error) { return summary, err }).ServeHTTP(w, httptest.NewRequest("GET", Path, nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("got %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

// TestHandler compares with what upstream's kubelet v1.37.1 writes for the same samples.
func TestHandler(t *testing.T) {
	got := scrape(t, Summary{
		Node: &Usage{Time: at(100), CPU: 1500 * time.Millisecond, Memory: 4096},
		Pods: []Pod{
			{Namespace: "ns", Name: "p", Usage: &Usage{Time: at(99), CPU: 750 * time.Millisecond, Memory: 2048, Swap: new(uint64(7))},
				Containers: []Container{
					{Name: "app", Started: at(10), Usage: Usage{Time: at(98), CPU: 500 * time.Millisecond, Memory: 1024}},
					{Name: "sidecar", Usage: Usage{Time: at(98), Memory: 512}},
				}},
			{Namespace: "ns", Name: "unmeasured"},
		},
	}, nil)
	want := `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="ns",pod="p"} 0.5 98000
container_cpu_usage_seconds_total{container="sidecar",namespace="ns",pod="p"} 0 98000
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="ns",pod="p"} 1024 98000
container_memory_working_set_bytes{container="sidecar",namespace="ns",pod="p"} 512 98000
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="ns",pod="p"} 10
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 1.5 100000
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 4096 100000
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 0.75 99000
# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="ns",pod="p"} 2048 99000
# HELP pod_swap_usage_bytes [ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems
# TYPE pod_swap_usage_bytes gauge
pod_swap_usage_bytes{namespace="ns",pod="p"} 7 99000
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHandlerReportsErrors(t *testing.T) {
	if got := scrape(t, Summary{}, errors.New("no runtime")); !strings.HasSuffix(got, "\nresource_scrape_error 1\n") || strings.Contains(got, "node_") {
		t.Errorf("got %s", got)
	}
}
