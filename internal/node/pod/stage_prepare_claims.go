// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// prepareClaims is the stage of PrepareClaims.
//
// Assumes: volumes are ready, and the pod has no ready sandbox.
// Leaves: the devices of the pod's claims, as their drivers prepared them. Memory.ClaimsReady.
// On failure: an event, and a Failure of OfClaims. What was prepared stays for the next attempt or for
// Release.
func (w *Worker) prepareClaims(ctx context.Context, t task) func(*Memory) {
	err := w.parts.Claims.Prepare(ctx, w.Pod())
	if err == nil {
		return func(m *Memory) {
			m.ClaimsReady = true
			delete(m.Failures, OfClaims)
		}
	}
	const reason = "FailedPrepareDynamicResources"
	message := "Failed to prepare dynamic resources: " + err.Error()
	if ctx.Err() == nil {
		w.event(t.pod, "", v1.EventTypeWarning, reason, message)
	}
	return w.failed(OfClaims, reason, message)
}
