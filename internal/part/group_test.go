// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package part

import (
	"context"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestStopReports: a part that is still stopping at the limit does not count as stopped.
func TestStopReports(t *testing.T) {
	obedient := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, test := range map[string]struct {
		hangs bool
		want  bool
	}{"all stop": {false, true}, "one hangs": {true, false}} {
		c := clocktesting.NewFakeClock(time.Unix(0, 0))
		release := make(chan struct{})
		g := NewGroup(func(err error) { t.Error(err) })
		g.Start("obedient", obedient)
		if test.hangs {
			g.Start("hanging", func(context.Context) error { <-release; return nil })
			go func() {
				for !c.HasWaiters() {
					time.Sleep(time.Millisecond)
				}
				c.Step(time.Second)
			}()
		}
		if got := g.Stop(c, time.Second); got != test.want {
			t.Errorf("%s: stopped is %t", name, got)
		}
		close(release)
	}
}
