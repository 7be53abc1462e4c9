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

// charges keep a quota from being given back what admission has just charged: it charges
// before the object is stored, and the object is seen later still.
type charges struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// seen has the state of a quota that said more than was counted, and since when it
	// is known.
	seen map[client.ObjectKey]charged
}

type charged struct {
	version string
	since   time.Time
}

func newCharges(clock clock.PassiveClock) *charges {
	return &charges{clock: clock, seen: map[client.ObjectKey]charged{}}
}

// settle is how long to wait until what was counted may be believed: as long as a figure
// would become lower that may have been charged a moment ago.
func (c *charges) settle(q *corev1.ResourceQuota, counted corev1.ResourceList) time.Duration {
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
	return settling - c.clock.Since(c.seen[key].since)
}

func (c *charges) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, key)
}
