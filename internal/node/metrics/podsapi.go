// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	compbasemetrics "k8s.io/component-base/metrics"
)

// podsAPI are the metrics of the Pods API.
type podsAPI struct {
	podsRequests     *compbasemetrics.CounterVec
	podsByMethod     map[string]*compbasemetrics.CounterVec
	podEventsDropped *compbasemetrics.Counter
}

func (m *Metrics) addPodsAPI() {
	m.podsRequests = counters(m.registry, "pod_requests_total", "Number of requests to the Pods API.", "server_api_version", "status_code")
	m.podsByMethod = map[string]*compbasemetrics.CounterVec{}
	for method, name := range map[string]string{"ListPods": "list", "GetPod": "get", "WatchPods": "watch"} {
		m.podsByMethod[method] = counters(m.registry, "pod_requests_"+name+"_total", "Number of requests to the method "+method+" of the Pods API.", "server_api_version", "status_code")
	}
	m.podEventsDropped = counter(m.registry, "pod_watch_events_dropped_total", "Number of events of the Pods API that a watch did not get.")
}

// PodsRequest counts a request to a method of a version of the Pods API.
func (m *Metrics) PodsRequest(version, method string, err error) {
	if m == nil {
		return
	}
	code := codeOf(err)
	if errors.Is(err, context.Canceled) {
		code = codes.Canceled.String() // a watch ends with the error of its context
	}
	m.podsRequests.WithLabelValues(version, code).Inc()
	if requests := m.podsByMethod[method]; requests != nil {
		requests.WithLabelValues(version, code).Inc()
	}
}

// PodEventDropped counts an event that a watch of the Pods API did not get.
func (m *Metrics) PodEventDropped() {
	if m != nil {
		m.podEventsDropped.Inc()
	}
}
