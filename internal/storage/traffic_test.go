// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestTraffic: the traffic of one server is known to another, until it ends.
func TestTraffic(t *testing.T) {
	b := open(t, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	sharing, following := clocktesting.NewFakeClock(time.Unix(0, 0)), clocktesting.NewFakeClock(time.Unix(0, 0))
	var busy atomic.Bool
	traffic := NewTraffic(following)
	ended := make(chan error)
	go func() { ended <- b.ShareTraffic(ctx, "a", busy.Load, sharing) }()
	go func() { ended <- traffic.Run(ctx, b) }()
	known := func(want bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); traffic.Busy() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("busy is not %v", want)
			}
			if sharing.HasWaiters() {
				sharing.Step(trafficInterval)
			}
		}
	}
	known(false)
	busy.Store(true)
	known(true)
	busy.Store(false)
	following.Step(trafficAge)
	known(false)
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
