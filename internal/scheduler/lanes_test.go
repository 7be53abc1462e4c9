// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"slices"
	"testing"
)

func TestLanesKeepTheOrderOfAPod(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := startLanes(ctx)
	blocked, other, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var order []int
	l.do("a", func() { <-blocked; order = append(order, 1) })
	l.do("a", func() { order = append(order, 2) })
	l.do("a", func() { order = append(order, 3); close(done) })
	// Another pod does not wait for this one.
	l.do("b", func() { close(other) })
	<-other
	close(blocked)
	<-done
	if !slices.Equal(order, []int{1, 2, 3}) {
		t.Errorf("the work ran in the order %v", order)
	}
	l.done.Wait()
	if len(l.waiting) != 0 || len(l.slots) != 0 {
		t.Errorf("%d pods and %d slots are kept after the work", len(l.waiting), len(l.slots))
	}
}

func TestLanesEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	l := startLanes(ctx)
	started := make(chan struct{})
	l.do("a", func() { close(started); <-ctx.Done() })
	l.do("a", func() { t.Error("work runs after the end of the context") })
	<-started
	cancel()
	l.wait()
}
