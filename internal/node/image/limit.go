// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// Limits restrict the pulls of a node. The zero value does not.
type Limits struct {
	// Parallel is the maximum number of concurrent pulls; 0 means no limit. Further pulls wait.
	Parallel int64
	// PerSecond is the maximum rate of pulls, after a burst of at most Burst; 0 means no limit. Pulls beyond it fail and are
	// retried with backoff.
	PerSecond float32
	Burst     int
}

// errTooMany is the failure of a pull that exceeds Limits.PerSecond. Its text is upstream's.
var errTooMany = errors.New("pull QPS exceeded")

// limiter enforces Limits. Its fields are nil for no limit.
type limiter struct {
	slots *semaphore.Weighted
	rate  flowcontrol.PassiveRateLimiter
}

func newLimiter(l Limits, c clock.PassiveClock) limiter {
	var out limiter
	if l.Parallel > 0 {
		out.slots = semaphore.NewWeighted(l.Parallel)
	}
	if l.PerSecond > 0 {
		out.rate = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(l.PerSecond, l.Burst, c)
	}
	return out
}

// wait waits until an image may be pulled, in the order of the calls. The caller must call done after the pull.
func (l limiter) wait(ctx context.Context) (done func(), err error) {
	if l.slots == nil {
		return func() {}, nil
	}
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { l.slots.Release(1) }, nil
}

// check returns errTooMany if a pull that begins now exceeds the rate.
func (l limiter) check() error {
	if l.rate == nil || l.rate.TryAccept() {
		return nil
	}
	return errTooMany
}
