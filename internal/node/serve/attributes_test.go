// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"strings"
	"testing"
)

// TestSubresources: the documented subresources of each path, and of none that only begins like it.
func TestSubresources(t *testing.T) {
	for path, want := range map[string]string{
		"/stats": "stats", "/stats/summary": "stats",
		"/metrics": "metrics", "/metrics/": "metrics", "/metrics/cadvisor": "metrics", "/metrics/resource": "metrics", "/metrics/probes": "metrics",
		"/logs": "log", "/logs/": "log", "/logs/syslog": "log",
		"/checkpoint/ns/p/c": "checkpoint",
		"/statusz":           "statusz", "/flagz": "configz",
		"/pods": "pods proxy", "/pods/": "pods proxy", "/runningpods/": "pods proxy", "/allocatedPods": "pods proxy",
		"/healthz": "healthz proxy", "/healthz/ping": "healthz proxy", "/configz": "configz proxy",
		"/exec/ns/p/c": "proxy", "/attach/ns/p/c": "proxy", "/run/ns/p/c": "proxy", "/portForward/ns/p": "proxy",
		"/containerLogs/ns/p/c": "proxy", "/debug/pprof/": "proxy", "/debug/flags/v": "proxy",
		"/": "proxy", "": "proxy", "/podsecret": "proxy", "/metricsx": "proxy", "/healthzy": "proxy", "/configzz": "proxy", "/LOGS/": "proxy",
	} {
		if got := strings.Join(subresourcesOf(path), " "); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

func TestVerbs(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "", "TRACE": "",
	} {
		if got := verbOf(method); got != want {
			t.Errorf("%s: %q, want %q", method, got, want)
		}
	}
}
