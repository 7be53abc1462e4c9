// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
)

// release is the stage of Release. It undoes PrepareClaims, PrepareVolumes, and the cgroup of CreateSandbox, and frees the
// resources that the pod was assigned when it was admitted.
//
// Assumes: no container of the pod runs, and all its sandboxes are stopped.
// Leaves: no prepared claim, assigned resource, volume, cgroup or user namespace of the pod. Memory.ClaimsReleased and
// Memory.Released, after which the API may let the pod go. Logs and exited containers stay, for kubectl
// logs.
// On failure: an event, and a Failure of OfVolumes.
func (w *Worker) release(ctx context.Context, t task) func(*Memory) {
	claims := w.parts.Claims.Unprepare(ctx, t.pod.UID)
	err := errors.Join(claims, w.parts.Resources.Release(t.pod.UID), w.parts.Volumes.Teardown(ctx, t.pod.UID), w.parts.Cgroups.Remove(t.pod.UID))
	if err == nil {
		err = w.parts.Users.Release(t.pod.UID) // after the volumes, whose files may have these IDs
	}
	if err == nil {
		return func(m *Memory) { m.ClaimsReleased, m.Released = true, true }
	}
	if ctx.Err() == nil {
		w.event(t.pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
	}
	failed := w.failed(OfVolumes, "FailedKillPod", err.Error())
	return func(m *Memory) {
		failed(m)
		m.ClaimsReleased = m.ClaimsReleased || claims == nil
	}
}
