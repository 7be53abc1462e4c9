// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// group runs parts until the group is stopped. A part that ends earlier is a failure of the
// cluster.
type group struct {
	once    sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (g *group) init() {
	g.once.Do(func() { g.ctx, g.cancel = context.WithCancel(context.Background()) })
}

// context returns a context that is done when the parts are to stop.
func (g *group) context() context.Context {
	g.init()
	return g.ctx
}

// start runs a part in a goroutine, until the group stops. failed is called if the part ends before.
func (g *group) start(name string, failed func(error), run func(context.Context) error) {
	g.init()
	g.running.Go(func() {
		err := run(g.ctx)
		if g.ctx.Err() != nil {
			return
		}
		if err == nil {
			failed(fmt.Errorf("%s ended unexpectedly", name))
			return
		}
		failed(fmt.Errorf("%s: %w", name, err))
	})
}

// stop stops the parts, waits for them up to the limit, and reports whether all have stopped.
func (g *group) stop(c clock.Clock, limit time.Duration) bool {
	g.init()
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
