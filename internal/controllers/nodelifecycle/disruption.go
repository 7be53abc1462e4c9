// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"
)

// Upstream's defaults of --node-eviction-rate and --secondary-node-eviction-rate (nodes per
// second), --large-cluster-size-threshold and --unhealthy-zone-threshold.
const (
	evictionRate           = 0.1
	secondaryEvictionRate  = 0.01
	largeZone              = 50
	unhealthyZoneThreshold = 0.55
)

// excludeFromDisruption is the label of nodes that do not count for the health of their zone.
const excludeFromDisruption = "node.kubernetes.io/exclude-disruption"

// zone counts the nodes of a failure domain.
type zone struct{ ready, notReady int }

// countZones counts the nodes of each zone, and reports whether any node is ready.
func countZones(nodes []corev1.Node) (zones map[string]zone, anyReady bool) {
	zones = map[string]zone{}
	for i := range nodes {
		if _, excluded := nodes[i].Labels[excludeFromDisruption]; excluded {
			continue
		}
		key := topology.GetZoneKey(&nodes[i])
		z := zones[key]
		if readiness(&nodes[i]) == corev1.ConditionTrue {
			z.ready++
			anyReady = true
		} else {
			z.notReady++
		}
		zones[key] = z
	}
	return zones, anyReady
}

// rate returns how many nodes per second may get a NoExecute taint in the zone. A zone without
// ready nodes has the full rate: other zones have ready nodes, so the zone is lost and the
// control plane is not disconnected.
func (z zone) rate() float64 {
	size := z.ready + z.notReady
	switch {
	case z.ready == 0, z.notReady <= 2, float64(z.notReady)/float64(size) < unhealthyZoneThreshold:
		return evictionRate
	case size > largeZone:
		return secondaryEvictionRate
	}
	return 0
}

// limiter is a rate limiter whose rate may change with each call.
type limiter struct {
	mu   sync.Mutex
	last map[string]time.Time // by zone
}

// allow reports whether the zone may have another event now.
func (l *limiter) allow(zone string, rate float64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rate <= 0 {
		return false
	}
	if last, ok := l.last[zone]; ok && now.Sub(last).Seconds() < 1/rate {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[zone] = now
	return true
}
