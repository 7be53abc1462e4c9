// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// stopContainer is the stage of StopContainer.
//
// Assumes: the preStop hook of the run Action.ID is over, or its deadline has passed.
// Leaves: the run exited: after the stop signal, or after SIGKILL at Action.Deadline. The run gets
// at least minGrace between the two. If the deadline becomes earlier, a second call of the stage runs
// concurrently with the first; see Worker.shortenStop.
// On failure: an event and a pause. Decide repeats the action while the run is running. If the runtime went away, the stop
// begins again; see Memory.interrupt.
func (w *Worker) stopContainer(ctx context.Context, t task) func(*Memory) {
	grace := max(t.Deadline.Sub(w.parts.Clock.Now()), minGrace)
	err := w.parts.Runtime.StopContainer(context.WithoutCancel(ctx), w.uid, t.ID, grace)
	w.reportTeardown(ctx, t, err)
	if runtime.IsUnavailable(err) {
		return (*Memory).interrupt
	}
	return nil
}
