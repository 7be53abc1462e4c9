// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"
)

// trafficPrefix has a key for each server, which that server writes while clients wait for its responses. Only the writes matter, not
// what is stored.
const trafficPrefix = ownPrefix + "traffic/"

const (
	// trafficInterval is the time between two writes of a server that has traffic.
	trafficInterval = 500 * time.Millisecond
	// trafficAge is how long a write says that a server has traffic.
	trafficAge = 3 * trafficInterval
	// watchPause is the time before a watch that has ended begins again.
	watchPause = time.Second
)

// ShareTraffic tells other servers of the store, until ctx is done, when this one has traffic.
func (b *Backend) ShareTraffic(ctx context.Context, server string, busy func() bool, c clock.WithTicker) error {
	ticker := c.NewTicker(trafficInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
		if busy() {
			_, _ = b.client.Client.Put(ctx, trafficPrefix+server, "") // a failure delays nothing but courtesy
		}
	}
}

// Traffic knows whether other servers of a store have traffic.
type Traffic struct {
	clock clock.WithTicker
	last  atomic.Pointer[time.Time]
}

// NewTraffic returns a Traffic that knows nothing before Run.
func NewTraffic(c clock.WithTicker) *Traffic { return &Traffic{clock: c} }

// Busy reports whether another server has traffic.
func (t *Traffic) Busy() bool {
	last := t.last.Load()
	return last != nil && t.clock.Since(*last) < trafficAge
}

// Run follows the traffic of the other servers of a store until ctx is done.
func (t *Traffic) Run(ctx context.Context, b *Backend) error {
	for {
		for range b.client.Watch(ctx, trafficPrefix, clientv3.WithPrefix()) {
			now := t.clock.Now()
			t.last.Store(&now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.clock.After(watchPause):
		}
	}
}
