// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	"github.com/kindred-project/kindred/internal/mounts"
)

// clean is the stage of Clean, the last of a pod.
//
// Assumes: the API and the runtime no longer have the pod, and it is released.
// Leaves: no file of the pod on the node. Memory.Cleaned, after which its worker returns.
// On failure: nothing is reported. The next sweep removes what is left below PodDir (see garbage.Sweeper and
// volume.Manager.RemoveOrphans).
func (w *Worker) clean(_ context.Context, t task) func(*Memory) {
	layout := w.parts.Host.Layout
	// The directory of the pod is what makes its logs the agent's.
	if layout.RemovePodLogs(layout.PodLogsDir(t.pod.Namespace, t.pod.Name, t.pod.UID)) == nil {
		_ = mounts.RemoveAll(layout.PodDir(t.pod.UID))
	}
	w.parts.Runtime.Forget(t.pod.UID)
	return func(m *Memory) { m.Cleaned = true }
}
