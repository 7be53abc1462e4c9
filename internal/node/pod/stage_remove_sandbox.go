// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import "context"

// removeSandbox is the stage of RemoveSandbox.
//
// Assumes: the sandbox is not ready, and either the API no longer has the pod or none of the runs
// that are kept for their logs is in this sandbox.
// Leaves: the runtime without the sandbox and its containers. Their logs stay until Clean.
// On failure: an event and a pause. Decide repeats the action while the runtime has the sandbox.
func (w *Worker) removeSandbox(ctx context.Context, t task) func(*Memory) {
	err := w.parts.Runtime.RemovePodSandbox(context.WithoutCancel(ctx), w.uid, t.ID)
	w.reportTeardown(ctx, t, err)
	return nil
}
