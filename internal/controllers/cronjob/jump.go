// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

const (
	// jumpInterval is the time between two checks of the clock. A start that a jump makes due may be
	// this late.
	jumpInterval = 5 * time.Second
	// jumpTolerance is the drift of the wall clock that is tolerated in an interval, for example when NTP
	// adjusts it.
	jumpTolerance = 500 * time.Millisecond
)

// clockWatch requeues all CronJobs when the wall clock was set, or ran on while the machine slept.
// Timers count monotonic time, and would be as late as the jump is long.
type clockWatch struct {
	client  client.Reader
	clock   clock.PassiveClock
	jumps   chan event.GenericEvent
	checked time.Time
}

func newClockWatch(env control.Env) *clockWatch {
	return &clockWatch{client: env.Client, clock: env.Clock, jumps: make(chan event.GenericEvent)}
}

func (w *clockWatch) check(ctx context.Context) error {
	before, now := w.checked, w.clock.Now()
	w.checked = now
	// Round strips the monotonic reading.
	if before.IsZero() || !isJump(now.Round(0).Sub(before.Round(0)), now.Sub(before)) {
		return nil
	}
	crons := &batchv1.CronJobList{}
	if err := w.client.List(ctx, crons, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range crons.Items {
		select {
		case w.jumps <- event.GenericEvent{Object: &crons.Items[i]}:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// isJump reports whether the wall clock advanced by another time than has passed.
func isJump(wall, passed time.Duration) bool { return (wall - passed).Abs() > jumpTolerance }
