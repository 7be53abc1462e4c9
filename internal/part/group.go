// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package part has what the parts of the process have in common: how they are started and stopped together, and the
// user that each of them is for the API.
package part

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Group runs parts until it is stopped.
type Group struct {
	ctx     context.Context
	cancel  context.CancelFunc
	failed  func(error)
	running sync.WaitGroup
}

// NewGroup returns a group. It calls failed with the error of each part that ends before the group is stopped.
func NewGroup(failed func(error)) *Group {
	g := &Group{failed: failed}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns a context that is done when the parts are to stop.
func (g *Group) Context() context.Context { return g.ctx }

// Start runs a part in a goroutine until the group is stopped.
func (g *Group) Start(name string, run func(context.Context) error) {
	g.running.Go(func() {
		err := run(g.ctx)
		if g.ctx.Err() != nil {
			return
		}
		if err == nil {
			g.failed(fmt.Errorf("%s ended unexpectedly", name))
			return
		}
		g.failed(fmt.Errorf("%s: %w", name, err))
	})
}

// Await waits for a channel to be closed, and returns an error if ctx is done before.
func Await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop stops the parts, waits for them up to the limit, and reports whether all have stopped.
func (g *Group) Stop(c clock.Clock, limit time.Duration) bool {
	g.cancel()
	stopped := make(chan struct{})
	go func() {
		g.running.Wait()
		close(stopped)
	}()
	timer := c.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-stopped:
		return true
	case <-timer.C():
		return false
	}
}
