// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// healthLimit is the validity of a report for which the driver states none.
const healthLimit = 30 * time.Second

// maxDevices is the number of devices of a driver whose health is kept, upstream's: reports are not compared
// with ResourceSlices.
const maxDevices = 16384

// deviceID identifies a device of a driver.
type deviceID struct{ pool, name string }

// deviceHealth is the latest report of a driver about a device.
type deviceHealth struct {
	health  v1.ResourceHealthStatus
	message string
	limit   time.Duration // the validity of the report
	at      time.Time
}

func (h deviceHealth) expired(now time.Time) bool { return now.Sub(h.at) > h.limit }

// health holds the latest reports of all drivers.
type health struct {
	mu      sync.Mutex
	drivers map[string]map[deviceID]deviceHealth
}

// get returns the health of a device, Unknown without a valid report.
func (h *health) get(driver string, id deviceID, now time.Time) deviceHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.drivers[driver][id]
	if !ok || known.expired(now) {
		return deviceHealth{health: v1.ResourceHealthStatusUnknown}
	}
	return known
}

// update stores a report and returns the devices whose health has changed.
func (h *health) update(driver string, report []*healthv1.DeviceHealth, now time.Time) []deviceID {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.drivers[driver]
	if known == nil {
		known = map[deviceID]deviceHealth{}
		h.drivers[driver] = known
	}
	var changed []deviceID
	for _, d := range report {
		id := deviceID{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		old, ok := known[id]
		if !ok && len(known) >= maxDevices {
			continue
		}
		known[id] = reported(d, now)
		if !ok || old.health != known[id].health || old.message != known[id].message {
			changed = append(changed, id)
		}
	}
	return append(changed, dropExpired(known, now)...)
}

// expire forgets reports that are no longer valid, and returns their devices by driver.
func (h *health) expire(now time.Time) map[string][]deviceID {
	h.mu.Lock()
	defer h.mu.Unlock()
	expired := map[string][]deviceID{}
	for driver, known := range h.drivers {
		if dropped := dropExpired(known, now); len(dropped) > 0 {
			expired[driver] = dropped
		}
	}
	return expired
}

// clear forgets what a driver reported, and returns its devices.
func (h *health) clear(driver string) []deviceID {
	h.mu.Lock()
	defer h.mu.Unlock()
	devices := slices.Collect(maps.Keys(h.drivers[driver]))
	delete(h.drivers, driver)
	return devices
}

// dropExpired removes expired reports and returns the devices whose health was known.
func dropExpired(known map[deviceID]deviceHealth, now time.Time) (changed []deviceID) {
	for id, d := range known {
		if !d.expired(now) {
			continue
		}
		delete(known, id)
		if d.health != v1.ResourceHealthStatusUnknown {
			changed = append(changed, id)
		}
	}
	return changed
}

func reported(d *healthv1.DeviceHealth, now time.Time) deviceHealth {
	h := deviceHealth{health: v1.ResourceHealthStatusUnknown, message: d.GetMessage(), limit: healthLimit, at: now}
	switch d.GetHealth() {
	case healthv1.HealthStatus_HEALTHY:
		h.health = v1.ResourceHealthStatusHealthy
	case healthv1.HealthStatus_UNHEALTHY:
		h.health = v1.ResourceHealthStatusUnhealthy
	}
	if seconds := d.GetHealthCheckTimeoutSeconds(); seconds > 0 {
		h.limit = time.Duration(seconds) * time.Second
	}
	if len(h.message) > v1.ResourceHealthMessageMaxLength {
		h.message = h.message[:v1.ResourceHealthMessageMaxLength-3] + "..."
	}
	return h
}

// healthCheck is the interval between two searches for expired reports.
const healthCheck = 10 * time.Second

// Run notifies the pods of devices whose reports have expired, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.options.Clock.After(healthCheck):
		}
		for driver, devices := range m.health.expire(m.options.Clock.Now()) {
			m.notify(driver, devices)
		}
	}
}

// notify calls Changed for the pods that use one of a driver's devices.
func (m *Manager) notify(driver string, devices []deviceID) {
	pods := map[types.UID]bool{}
	for _, c := range m.options.Store.all() {
		uses := slices.ContainsFunc(c.Drivers[driver], func(d device) bool {
			return slices.Contains(devices, deviceID{d.Pool, d.Name})
		})
		for _, pod := range c.Pods {
			pods[pod] = pods[pod] || uses
		}
	}
	for pod, uses := range pods {
		if uses {
			m.options.Changed(pod)
		}
	}
}
