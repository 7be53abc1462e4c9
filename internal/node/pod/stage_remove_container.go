// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"os"
	"path/filepath"
)

// removeContainer is the stage of RemoveContainer.
//
// Assumes: the run Action.ID does not run: it exited, or was created and never started.
// Leaves: the runtime without the run, and the node without its log, rotated logs and the link to them.
// On failure: an event and a pause. Decide repeats the action while the runtime has the run.
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
	w.reportTeardown(ctx, t, err)
	return nil
}
