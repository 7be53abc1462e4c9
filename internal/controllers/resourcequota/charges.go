// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// charges protects what admission has just charged: it charges a quota before the object is stored,
// and the cache has the object even later.
type charges struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// seen holds the state of a quota with a higher usage than was counted, and when it was
	// first seen.
	seen map[client.ObjectKey]charged
}

type charged struct {
	version string
	since   time.Time
}

func newCharges(clock clock.PassiveClock) *charges {
	return &charges{clock: clock, seen: map[client.ObjectKey]charged{}}
}

// remainingWait returns how long to wait before the count may be written: a usage must not become
// lower if it may just have been charged.
func (c *charges) remainingWait(q *corev1.ResourceQuota, counted corev1.ResourceList) time.Duration {
	key := client.ObjectKeyFromObject(q)
	known := library.Mask(q.Status.Used, library.ResourceNames(counted))
	if lower, _ := library.LessThanOrEqual(known, counted); lower {
		c.forget(key)
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[key].version != q.ResourceVersion {
		c.seen[key] = charged{q.ResourceVersion, c.clock.Now()}
	}
	return countDelay - c.clock.Since(c.seen[key].since)
}

func (c *charges) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, key)
}
