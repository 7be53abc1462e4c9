// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

func report(name string, status healthv1.HealthStatus, message string, seconds int64) *healthv1.DeviceHealth {
	return &healthv1.DeviceHealth{
		Device: &healthv1.DeviceIdentifier{PoolName: "pool", DeviceName: name}, Health: status, Message: message, HealthCheckTimeoutSeconds: seconds,
	}
}

// TestHealth: reports change devices, expire after their own time or 30 s, and messages are cut.
func TestHealth(t *testing.T) {
	h := health{drivers: map[string]map[deviceID]deviceHealth{}}
	now := time.Unix(1e9, 0)
	x, y := deviceID{"pool", "x"}, deviceID{"pool", "y"}
	all := []*healthv1.DeviceHealth{report("x", healthv1.HealthStatus_HEALTHY, "", 0), report("y", healthv1.HealthStatus_UNHEALTHY, strings.Repeat("m", 2000), 5)}
	if changed := h.update("d", all, now); len(changed) != 2 {
		t.Errorf("changed %v", changed)
	}
	if changed := h.update("d", all, now); len(changed) != 0 {
		t.Errorf("changed again %v", changed)
	}
	if got := h.get("d", y, now); got.health != v1.ResourceHealthStatusUnhealthy || len(got.message) != 1024 || !strings.HasSuffix(got.message, "m...") {
		t.Errorf("got %+v", got)
	}
	now = now.Add(6 * time.Second)
	if got := h.get("d", y, now); got.health != v1.ResourceHealthStatusUnknown || got.message != "" {
		t.Errorf("expired %+v", got)
	}
	if expired := h.expire(now)["d"]; len(expired) != 1 || expired[0] != y {
		t.Errorf("expired %v", expired)
	}
	if changed := h.update("d", []*healthv1.DeviceHealth{report("y", healthv1.HealthStatus_HEALTHY, "", 60)}, now.Add(25*time.Second)); len(changed) != 2 {
		t.Errorf("changed %v: y is back and x expired", changed)
	}
	if got := h.get("d", x, now.Add(25*time.Second)); got.health != v1.ResourceHealthStatusUnknown {
		t.Errorf("got %+v", got)
	}
	if cleared := h.clear("d"); len(cleared) != 1 || len(h.drivers) != 0 {
		t.Errorf("cleared %v, left %v", cleared, h.drivers)
	}
}

// TestHealthReports: a report wakes the pods that use a device, and their statuses show it; so does the end of
// the reports.
func TestHealthReports(t *testing.T) {
	d := newDriver(t, "d", withHealth)
	w := newWorld(t)
	w.register(d, drapb.DRAPluginService, healthv1.DRAResourceHealthService)
	w.allocated("c", []string{"d"}, "p")
	w.allocated("other", []string{"d"}, "q")
	p := podWith("p", "c")
	check(t, "prepare", w.Prepare(t.Context(), p), "")
	check(t, "prepare", w.Prepare(t.Context(), podWith("q", "other")), "")
	shows := func(health v1.ResourceHealthStatus, message string) {
		t.Helper()
		if pod := <-w.changed; pod != "p" {
			t.Errorf("pod %s was woken", pod)
		}
		one := v1.ResourceHealth{ResourceID: "d/gpu=c", Health: health}
		if message != "" {
			one.Message = &message
		}
		want := map[string][]v1.ResourceStatus{"c": {{Name: "claim:c", Resources: []v1.ResourceHealth{one}}}}
		expect(t, "health", w.Health(p), want)
	}
	d.reports <- []*healthv1.DeviceHealth{report("c", healthv1.HealthStatus_UNHEALTHY, "hot", 0)}
	shows(v1.ResourceHealthStatusUnhealthy, "hot")
	// The delay before the removal of the driver's ResourceSlices would pass for the pause below.
	waitUntil(t, "the driver is not connected", func() bool { return w.connected(d) && !w.clock.HasWaiters() })
	d.reports <- nil
	shows(v1.ResourceHealthStatusUnknown, "")
	waitUntil(t, "no pause before the next stream", w.clock.HasWaiters)
	w.clock.Step(healthRetry)
	d.reports <- []*healthv1.DeviceHealth{report("c", healthv1.HealthStatus_HEALTHY, "", 0)}
	shows(v1.ResourceHealthStatusHealthy, "")
	expect(t, "a pod without claims", w.Health(podWith("r")), map[string][]v1.ResourceStatus{})
}

// TestHealthOfRequest: a container that uses one request of a claim sees the health of its devices only.
func TestHealthOfRequest(t *testing.T) {
	d := newDriver(t, "d", withV1)
	w := newWorld(t, d)
	w.allocated("c", []string{"d"}, "p")
	p := podWith("p", "c")
	check(t, "prepare", w.Prepare(t.Context(), p), "")
	for request, want := range map[string]int{"r": 1, "s": 0} {
		p.Spec.Containers[0].Resources.Claims[0].Request = request
		got := w.Health(p)["c"]
		if len(got) != want || want == 1 && got[0].Name != "claim:c/r" {
			t.Errorf("%s: %v", request, got)
		}
	}
}
