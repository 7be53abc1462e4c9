// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// postStart is the stage of PostStart.
//
// Assumes: the run Action.ID is running and its container has a postStart hook.
// Leaves: RunMemory.Hooked, after which the run counts as started and is probed.
// On failure: an event, RunMemory.HookFailed (Decide then stops the run) and a Failure of the
// container, which explains its waiting state. A cancelled hook leaves nothing.
func (w *Worker) postStart(ctx context.Context, t task) func(*Memory) {
	c := containerOf(t.pod, t.Container)
	message, err := w.parts.Handlers.Run(ctx, w.Pod(), c, t.ID, c.Lifecycle.PostStart)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		// The event omits the message, because a hook's output may be secret.
		w.event(t.pod, t.Container, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	}
	return func(m *Memory) {
		run := m.Runs[t.ID]
		run.Hooked, run.HookFailed = err == nil, err != nil
		m.Runs[t.ID] = run
		if err != nil {
			m.Failures[OfContainer(t.Container)] = Failure{Reason: reasonPostStartHook, Message: message}
		}
	}
}
