// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"
)

// Upstream's defaults of --node-eviction-rate, --secondary-node-eviction-rate (nodes
// a second), --large-cluster-size-threshold and --unhealthy-zone-threshold.
const (
	evictionRate           = 0.1
	secondaryEvictionRate  = 0.01
	largeZone              = 50
	unhealthyZoneThreshold = 0.55
)

// excludeFromDisruption is the label of nodes that do not count when the health
// of their zone is judged.
const excludeFromDisruption = "node.kubernetes.io/exclude-disruption"

// zone counts the nodes of a failure domain.
type zone struct{ ready, notReady int }

// countZones counts the nodes of each zone, and tells whether any node is ready.
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

// rate is how many nodes a second may get a NoExecute taint in the zone. A zone
// without any ready node has the full rate: as other zones have ready nodes, it
// is the zone that is lost and not the control plane that is cut off.
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

// limiter admits events at a rate that may change with each question.
type limiter struct {
	mu   sync.Mutex
	last map[string]time.Time // by zone
}

// admit tells whether another event of the zone may happen now.
func (l *limiter) admit(zone string, rate float64, now time.Time) bool {
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
