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

// census counts the nodes of each zone. Each node that is not ready asks for the counts: with thousands of nodes, a list for each
// would be the whole work of the controller.
type census struct {
	nodes map[string]counted
	zones map[string]zone
	ready int
}

// counted is what a node was counted as.
type counted struct {
	zone  string
	ready bool
}

func newCensus() *census { return &census{nodes: map[string]counted{}, zones: map[string]zone{}} }

// set counts a node, instead of what it was before.
func (c *census) set(node *corev1.Node) {
	if _, excluded := node.Labels[excludeFromDisruption]; excluded {
		c.remove(node.Name)
		return
	}
	next := counted{topology.GetZoneKey(node), readiness(node) == corev1.ConditionTrue}
	if before, found := c.nodes[node.Name]; found && before == next {
		return
	}
	c.remove(node.Name)
	c.nodes[node.Name] = next
	c.add(next, 1)
}

func (c *census) remove(node string) {
	if before, found := c.nodes[node]; found {
		delete(c.nodes, node)
		c.add(before, -1)
	}
}

func (c *census) add(node counted, n int) {
	z := c.zones[node.zone]
	if node.ready {
		z.ready += n
		c.ready += n
	} else {
		z.notReady += n
	}
	if c.zones[node.zone] = z; z == (zone{}) {
		delete(c.zones, node.zone)
	}
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
