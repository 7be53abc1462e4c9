// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTrafficNeedsRequestsInShortOrder(t *testing.T) {
	tests := []struct {
		name string
		// gaps are the times before each request, rest is the time between the last request and the
		// check.
		gaps []time.Duration
		rest time.Duration
		want bool
	}{
		{name: "no request", rest: time.Millisecond},
		{name: "one request", gaps: make([]time.Duration, 1)},
		{name: "a command of three requests", gaps: make([]time.Duration, trafficRequests-1)},
		{name: "20 a second", gaps: []time.Duration{0, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond}, rest: 49 * time.Millisecond, want: true},
		{name: "10 a second", gaps: []time.Duration{0, 100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}},
		{name: "many, in the past", gaps: make([]time.Duration, 100), rest: trafficWindow + 1},
		{name: "many, and just now", gaps: make([]time.Duration, 100), rest: trafficWindow, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
			traffic := &traffic{clock: clock}
			for _, gap := range test.gaps {
				clock.Step(gap)
				traffic.arrived()
			}
			clock.Step(test.rest)
			if got := traffic.isBusy(); got != test.want {
				t.Errorf("traffic: got %v, want %v", got, test.want)
			}
		})
	}
}

func TestTrafficIsWhatSomebodyWaitsFor(t *testing.T) {
	get := request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "secrets"}
	tests := []struct {
		name string
		info request.RequestInfo
		user string
		want bool
	}{
		{name: "a user", info: get, user: "kubernetes-admin", want: true},
		{name: "a program in a pod", info: get, user: "system:serviceaccount:default:operator", want: true},
		{name: "an anonymous user", info: get, user: user.Anonymous, want: true},
		{name: "the collector", info: get, user: collectorUser},
		{name: "an add-on", info: get, user: "system:serviceaccount:kube-system:coredns"},
		{name: "the scheduler", info: get, user: user.KubeScheduler},
		{name: "the server", info: get, user: user.APIServerUser},
		{name: "a node", info: get, user: "system:node:a"},
		{name: "simulated nodes", info: get, user: "kindred:simulated-nodes"},
		{name: "a watch", info: request.RequestInfo{IsResourceRequest: true, Verb: "watch", Resource: "secrets"}, user: "jane"},
		{name: "a lease", info: request.RequestInfo{IsResourceRequest: true, Verb: "update", APIGroup: "coordination.k8s.io", Resource: "leases"}, user: "jane"},
		{name: "a probe", info: request.RequestInfo{Verb: "get", Path: "/readyz"}, user: "jane"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			traffic := &traffic{clock: clocktesting.NewFakeClock(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))}
			served := 0
			handler := traffic.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			ctx := request.WithUser(request.WithRequestInfo(r.Context(), &test.info), &user.DefaultInfo{Name: test.user})
			for range trafficRequests {
				handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
			}
			if got := traffic.isBusy(); got != test.want || served != trafficRequests {
				t.Errorf("got %v, %d served; want %v, %d", got, served, test.want, trafficRequests)
			}
		})
	}
}
