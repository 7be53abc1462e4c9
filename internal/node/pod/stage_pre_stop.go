// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// preStop is the stage of PreStop.
//
// Assumes: the run Action.ID is running, is to be stopped, and its container has a preStop hook.
// Leaves: RunMemory.PreStopped, at the end of the hook or at Action.Deadline. StopContainer follows in either case. A hook that
// has not ended by then runs on, as in the kubelet, while its container has minGrace to end, and is cancelled after that.
// On failure: an event. The container is stopped all the same. If the runtime went away, the stop begins again, with the
// hook; see Memory.interrupt.
func (w *Worker) preStop(ctx context.Context, t task) func(*Memory) {
	hook, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	c := containerOf(t.pod, t.Container)
	go func() {
		_, err := w.parts.Handlers.Run(hook, w.Pod(), c, t.ID, c.Lifecycle.PreStop)
		done <- err
	}()
	select {
	case err := <-done:
		cancel()
		if err != nil && ctx.Err() == nil {
			// The event omits the message, because a hook's output may be secret.
			w.event(t.pod, t.Container, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
		if runtime.IsUnavailable(err) {
			return (*Memory).interrupt
		}
	case <-ctx.Done():
		cancel()
	case <-w.parts.Clock.After(t.Deadline.Sub(w.parts.Clock.Now())):
		go func() {
			defer cancel()
			select {
			case <-done:
			case <-w.parts.Clock.After(minGrace):
			}
		}()
	}
	return func(m *Memory) {
		run := m.Runs[t.ID]
		run.PreStopped = true
		m.Runs[t.ID] = run
	}
}
