// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Reasons of conditions.
const (
	reasonCreated     = "NewReplicaSetCreated"
	reasonFound       = "FoundNewReplicaSet"
	reasonCreateError = "ReplicaSetCreateError"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
	reasonAvailable   = "MinimumReplicasAvailable"
	reasonUnavailable = "MinimumReplicasUnavailable"
)

// desired returns spec.replicas, which the API defaults to 1.
func desired(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// size returns spec.replicas of a ReplicaSet, which the API defaults to 1.
func size(rs *appsv1.ReplicaSet) int32 { return ptr.Deref(rs.Spec.Replicas, 1) }

// statusOf returns the sum of the ReplicaSets. newest may be nil.
func statusOf(d *appsv1.Deployment, newest *appsv1.ReplicaSet, old []*appsv1.ReplicaSet, now time.Time) appsv1.DeploymentStatus {
	status := appsv1.DeploymentStatus{
		ObservedGeneration:  d.Generation,
		CollisionCount:      d.Status.CollisionCount,
		Conditions:          slices.Clone(d.Status.Conditions),
		TerminatingReplicas: ptr.To[int32](0),
	}
	planned := int32(0)
	for _, rs := range all(newest, old) {
		planned += size(rs)
		status.Replicas += rs.Status.Replicas
		status.ReadyReplicas += rs.Status.ReadyReplicas
		status.AvailableReplicas += rs.Status.AvailableReplicas
		status.TerminatingReplicas = addTerminating(status.TerminatingReplicas, rs)
	}
	if newest != nil {
		status.UpdatedReplicas = newest.Status.Replicas
	}
	// While scaling down, more pods may be available than planned.
	status.UnavailableReplicas = max(0, planned-status.AvailableReplicas)

	available := condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonUnavailable, "Deployment does not have minimum availability.", now)
	if status.AvailableReplicas >= limitsOf(d).minAvailable() {
		available = condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonAvailable, "Deployment has minimum availability.", now)
	}
	setCondition(&status, available)
	return status
}

// addTerminating adds a ReplicaSet's terminating pods. If the ReplicaSet does not count
// them, the sum is unknown (nil).
func addTerminating(sum *int32, rs *appsv1.ReplicaSet) *int32 {
	switch {
	case sum == nil:
		return nil
	case rs.Status.TerminatingReplicas != nil:
		return ptr.To(*sum + *rs.Status.TerminatingReplicas)
	case rs.Status.ObservedGeneration == 0:
		return sum
	default:
		return nil
	}
}

// addConditions adds the conditions of a rollout to status: whether it is complete,
// progresses or is stuck, and why pods cannot be created. d has the old status.
func addConditions(d *appsv1.Deployment, status *appsv1.DeploymentStatus, newest *appsv1.ReplicaSet, old []*appsv1.ReplicaSet, now time.Time) {
	if !hasDeadline(d) {
		removeCondition(status, appsv1.DeploymentProgressing)
	} else {
		setProgressing(d, status, newest, now)
	}
	removeFailure := true
	for _, rs := range all(newest, old) {
		i := slices.IndexFunc(rs.Status.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
		if i < 0 {
			continue
		}
		c := rs.Status.Conditions[i]
		setCondition(status, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime,
		})
		removeFailure = false
		break
	}
	if removeFailure {
		removeCondition(status, appsv1.DeploymentReplicaFailure)
	}
}

func setProgressing(d *appsv1.Deployment, status *appsv1.DeploymentStatus, newest *appsv1.ReplicaSet, now time.Time) {
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if newest != nil {
		subject = fmt.Sprintf("ReplicaSet %q", newest.Name)
	}
	current := getCondition(&d.Status, appsv1.DeploymentProgressing)
	if current != nil && current.Reason == reasonComplete && status.Replicas == status.UpdatedReplicas {
		return // no rollout since the last one was completed
	}
	switch {
	case complete(d, status):
		setCondition(status, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonComplete, subject+" has successfully progressed.", now))
	case progressed(&d.Status, status):
		c := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, subject+" is progressing.", now)
		if current != nil && current.Status == corev1.ConditionTrue {
			c.LastTransitionTime = current.LastTransitionTime
		}
		// Progress sets lastUpdateTime even if nothing else changes.
		removeCondition(status, appsv1.DeploymentProgressing)
		setCondition(status, c)
	case timedOut(d, current, now):
		setCondition(status, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing.", now))
	}
}

// complete reports whether all replicas are updated and available, and no old one is left.
func complete(d *appsv1.Deployment, status *appsv1.DeploymentStatus) bool {
	want := desired(d)
	return status.UpdatedReplicas == want && status.Replicas == want && status.AvailableReplicas == want &&
		status.ObservedGeneration >= d.Generation
}

// progressed reports whether a rollout has advanced between two statuses.
func progressed(before, after *appsv1.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas ||
		after.AvailableReplicas > before.AvailableReplicas
}

func timedOut(d *appsv1.Deployment, current *appsv1.DeploymentCondition, now time.Time) bool {
	switch {
	case current == nil:
		return false
	case current.Reason == reasonTimedOut:
		return true
	case current.Reason == reasonComplete:
		// The deadline of the next rollout starts with its first progress.
		return false
	default:
		return deadline(d, current).Before(now)
	}
}

// progressCheck returns the time until the progress deadline must be checked, or 0 if it need not
// be. No watch event wakes the controller then.
func progressCheck(d *appsv1.Deployment, status *appsv1.DeploymentStatus, now time.Time) time.Duration {
	current := getCondition(status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || d.Spec.Paused || current == nil || complete(d, status) ||
		current.Reason == reasonTimedOut || current.Reason == reasonComplete {
		return 0
	}
	// One more second, since the condition's times are truncated to seconds.
	return max(0, deadline(d, current).Sub(now)) + time.Second
}

func deadline(d *appsv1.Deployment, current *appsv1.DeploymentCondition) time.Time {
	return current.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// hasDeadline reports whether the Deployment has a progress deadline. MaxInt32 means none.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

// recordPause records a pause or resumption in the Progressing condition, so that the pause
// does not count against the deadline.
func recordPause(d *appsv1.Deployment, now time.Time) {
	current := getCondition(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || (current != nil && current.Reason == reasonTimedOut) {
		return
	}
	recorded := current != nil && current.Reason == reasonPaused
	switch {
	case d.Spec.Paused && !recorded:
		setCondition(&d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now))
	case !d.Spec.Paused && recorded:
		setCondition(&d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", now))
	}
}

func condition(of appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	t := metav1.NewTime(now)
	return appsv1.DeploymentCondition{Type: of, Status: status, Reason: reason, Message: message, LastUpdateTime: t, LastTransitionTime: t}
}

func getCondition(status *appsv1.DeploymentStatus, of appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == of })
	if i < 0 {
		return nil
	}
	return &status.Conditions[i]
}

// setCondition replaces the condition of c's type, unless it is the same.
func setCondition(status *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if current := getCondition(status, c.Type); current != nil {
		if current.Status == c.Status && current.Reason == c.Reason {
			return
		}
		if current.Status == c.Status {
			c.LastTransitionTime = current.LastTransitionTime
		}
	}
	removeCondition(status, c.Type)
	status.Conditions = append(status.Conditions, c)
}

func removeCondition(status *appsv1.DeploymentStatus, of appsv1.DeploymentConditionType) {
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == of })
}

// all returns the newest set, if it exists, and the old ones.
func all(newest *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	if newest == nil {
		return old
	}
	return append([]*appsv1.ReplicaSet{newest}, old...)
}
