// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// stopSandbox is the stage of StopSandbox.
//
// Assumes: none of the sandbox's containers runs. The sandbox may have failed before: its network
// must be released even then.
// Leaves: the sandbox stopped and its network freed. Memory.Stopped.
// On failure: an event and a pause. Decide repeats the action until it succeeds.
func (w *Worker) stopSandbox(ctx context.Context, t task) func(*Memory) {
	err := w.parts.Runtime.StopPodSandbox(context.WithoutCancel(ctx), w.uid, t.ID)
	if err == nil || runtime.IsNotFound(err) {
		return func(m *Memory) { m.Stopped[t.ID] = true }
	}
	w.reportTeardown(ctx, t, err)
	return nil
}
