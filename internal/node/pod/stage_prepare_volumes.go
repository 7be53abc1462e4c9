// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
)

// prepareVolumes is the stage of PrepareVolumes.
//
// Assumes: nothing. It runs first, and again after an agent restart or when a volume shows
// metadata of the pod that changed.
// Leaves: the volumes that containers mount, with content and ownership. Memory.VolumesReady.
// On failure: an event for each volume, and a Failure of OfVolumes; or one event and Memory.Rejected, if the node
// has as many volumes as it can have. Volumes that were mounted stay for the next attempt or for Release.
func (w *Worker) prepareVolumes(ctx context.Context, t task) func(*Memory) {
	err := w.parts.Volumes.Prepare(ctx, w.Pod())
	if err == nil {
		return func(m *Memory) { m.Prepared(t.pod) }
	}
	var tooMany *TooManyVolumes
	if errors.As(err, &tooMany) {
		refusal := &Refusal{Reason: "VolumeAttachmentLimitExceeded", Message: tooMany.Message}
		w.event(t.pod, "", v1.EventTypeWarning, refusal.Reason, refusal.Message)
		return func(m *Memory) { m.Rejected = refusal }
	}
	if ctx.Err() == nil {
		for _, failure := range VolumeErrors(err) {
			w.event(t.pod, "", v1.EventTypeWarning, failure.Reason, failure.Message)
		}
	}
	return w.failed(OfVolumes, "FailedMount", err.Error())
}
