// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// status returns the status. It counts nodes, not pods: a node with several pods counts once,
// by the first of them in the order of boundThenOldest.
func (v view) status() appsv1.DaemonSetStatus {
	status := *v.ds.Status.DeepCopy()
	status.ObservedGeneration = v.ds.Generation
	status.DesiredNumberScheduled = 0
	status.CurrentNumberScheduled = 0
	status.NumberMisscheduled = 0
	status.NumberReady = 0
	status.NumberAvailable = 0
	status.UpdatedNumberScheduled = 0
	for i := range v.places {
		v.count(&status, &v.places[i])
	}
	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberAvailable
	return status
}

// count adds a node to the status, as misscheduled if it has pods that the DaemonSet would not start
// there.
func (v view) count(status *appsv1.DaemonSetStatus, at *place) {
	switch {
	case !at.exists:
		return
	case !at.start:
		if len(at.pods) > 0 {
			status.NumberMisscheduled++
		}
		return
	}
	status.DesiredNumberScheduled++
	if len(at.pods) == 0 {
		return
	}
	status.CurrentNumberScheduled++
	pod := at.pods[0]
	if pods.IsReady(pod) {
		status.NumberReady++
	}
	if v.available(pod) {
		status.NumberAvailable++
	}
	if v.stamp.isOn(pod) {
		status.UpdatedNumberScheduled++
	}
}
