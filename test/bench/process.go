// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

const (
	starts   = 5
	idleTime = 30 * time.Second
)

// startTime returns the median of several starts. Each has a new directory, so that certificates,
// store and bootstrap objects are created each time.
func startTime(ctx context.Context, b *bench) (float64, error) {
	var took []time.Duration
	for range starts {
		c, err := b.start(ctx, simulatedNode...)
		if err != nil {
			return 0, err
		}
		took = append(took, c.startTook)
		c.stop()
	}
	return median(took).Seconds(), nil
}

// idleMemory returns the memory of an idle process after the start, without the container runtime,
// which is a separate process.
func idleMemory(ctx context.Context, b *bench) (float64, error) {
	c, err := b.start(ctx, realNode...)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	select {
	case <-time.After(idleTime):
		return c.rss()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
