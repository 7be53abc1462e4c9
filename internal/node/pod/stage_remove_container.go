// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// removeContainer is the stage of RemoveContainer.
//
// Assumes: the run Action.ID does not run: it exited, or was created and never started.
// Leaves: the runtime without the run, and the node without its log, rotated logs and the link to them.
// On failure: an event and a pause. Decide repeats the action while the runtime has the run. If it refuses because the run still has
// processes, they are killed.
func (w *Worker) removeContainer(ctx context.Context, t task) func(*Memory) {
	for _, run := range w.lastSeen() {
		if run.ID != t.ID || run.LogPath == "" {
			continue
		}
		rotated, _ := filepath.Glob(run.LogPath + ".*")
		for _, path := range append(rotated, run.LogPath) {
			_ = os.Remove(path)
		}
		if link := w.parts.Host.Layout.Link(t.pod.Namespace, t.pod.Name, run.Name, run.ID); link != "" {
			_ = os.Remove(link)
		}
	}
	err := w.parts.Runtime.RemoveContainer(context.WithoutCancel(ctx), w.uid, t.ID)
	if status.Code(err) == codes.FailedPrecondition {
		// An interrupted start, as by the end of an earlier agent, can leave a process in a run that the runtime considers ended. It
		// neither stops nor removes such a run until the process has ended. runtime.WithoutTasks has already asked
		// containerd to delete it; that fails while containerd is still starting the process.
		err = errors.Join(err, w.parts.Cgroups.Kill(w.uid, t.ID))
	}
	w.reportTeardown(ctx, t, err)
	return nil
}
