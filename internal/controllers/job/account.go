// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// outcome is the result of a plan.
type outcome struct {
	created             int
	terminated, dropped []*corev1.Pod
}

// account is what one Reconcile writes, before and after it removes finalizers.
type account struct {
	// status is written before the finalizers are removed.
	status batchv1.JobStatus
	// release holds the pods whose finalizers are removed then.
	release []*corev1.Pod
	// endCondition is SuccessCriteriaMet or FailureTarget, if the end of the Job is decided
	// and nothing delays it.
	endCondition *batchv1.JobCondition
	// tracked holds the pods that still have the finalizer.
	tracked sets.Set[types.UID]
	// full is set if more pods must be counted than one Reconcile does.
	full bool
}

// account records ended pods, and selects the pods whose finalizer can be removed.
func (o *observed) account(p plan, done outcome) *account {
	a := &account{status: *o.job.Status.DeepCopy(), endCondition: p.endCondition, tracked: sets.Set[types.UID]{}}
	a.status.StartTime = o.start
	if a.status.UncountedTerminatedPods == nil {
		a.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	deleted := slices.Concat(done.terminated, done.dropped)
	active := len(o.active) + done.created - len(deleted)
	a.status.Active = int32(active)
	a.status.Ready = ptr.To(int32(countReady(o.active) - countReady(deleted)))
	a.status.Terminating = ptr.To(int32(o.terminating + len(deleted)))
	o.conclude(a, p, done, active)
	o.recordEnded(a, done.dropped)
	if isIndexed(o.job) {
		a.status.Succeeded = int32(o.completed.count())
		a.status.CompletedIndexes = o.completed.String()
		a.status.FailedIndexes = nil
		if o.job.Spec.BackoffLimitPerIndex != nil {
			a.status.FailedIndexes = ptr.To(o.failedIndexes.String())
		}
	}
	if a.endCondition != nil {
		setCondition(&a.status, a.endCondition)
	}
	return a
}

// conclude decides or postpones the end of the Job, and sets the condition Suspended.
func (o *observed) conclude(a *account, p plan, done outcome, active int) {
	if p.endCondition != nil {
		if len(done.terminated) < len(p.terminate) {
			a.endCondition = nil // The remaining pods may change the decision.
		}
		return
	}
	if a.endCondition = o.completedBy(active); a.endCondition != nil || o.job.DeletionTimestamp != nil {
		return
	}
	if isSuspended(o.job) {
		if setCondition(&a.status, newCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", o.now)) {
			a.status.StartTime = nil
		}
		return
	}
	// The deadline counts from the last resumption of the Job.
	if setCondition(&a.status, newCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", o.now)) {
		a.status.StartTime = ptr.To(metav1.NewTime(o.now))
	}
}

// recordEnded adds the UIDs of ended pods to the status, and selects pods to release.
func (o *observed) recordEnded(a *account, dropped []*corev1.Pod) {
	released := sets.Set[types.UID]{}
	for _, pod := range dropped {
		released.Insert(pod.UID)
	}
	for _, pod := range o.pods {
		if isTracked(pod) && !released.Has(pod.UID) {
			a.tracked.Insert(pod.UID)
		}
	}
	countReleased(&a.status, a.tracked)
	listed := a.status.UncountedTerminatedPods
	newIndexes := 0
	for _, pod := range o.pods {
		if !a.tracked.Has(pod.UID) || !o.isReleasable(pod, a.endCondition) {
			continue
		}
		a.release = append(a.release, pod)
		switch o.countsAs(pod, a.endCondition) {
		case batchv1.JobComplete:
			if isIndexed(o.job) {
				newIndexes++ // The index in the status replaces the UID.
			} else {
				listed.Succeeded = append(listed.Succeeded, pod.UID)
			}
		case batchv1.JobFailed:
			listed.Failed = append(listed.Failed, pod.UID)
		}
		if newIndexes+len(listed.Succeeded)+len(listed.Failed) >= burst {
			a.full = true
			return
		}
	}
}

// isReleasable reports whether the Job needs nothing more from the pod.
func (o *observed) isReleasable(pod *corev1.Pod, end *batchv1.JobCondition) bool {
	switch {
	case o.job.DeletionTimestamp != nil, end != nil, pod.Status.Phase == corev1.PodSucceeded:
		return true
	case !o.isFailed(pod):
		return false
	}
	index, _ := indexOf(pod, o.completions)
	awaiting := o.awaiting[index]
	return awaiting == nil || awaiting.UID != pod.UID
}

// countsAs returns the counter of a pod that the status does not name yet: JobComplete,
// JobFailed, or "" for none. If a Job fails, all of its remaining pods count as failed.
func (o *observed) countsAs(pod *corev1.Pod, end *batchv1.JobCondition) batchv1.JobConditionType {
	switch {
	case !o.isRelevant(pod), o.uncounted.failed.Has(pod.UID), o.uncounted.succeeded.Has(pod.UID):
		return ""
	case pod.Status.Phase == corev1.PodSucceeded:
		if index, _ := indexOf(pod, o.completions); isIndexed(o.job) && o.completedBefore.contains(index) {
			return ""
		}
		return batchv1.JobComplete
	case !o.isFailed(pod) && (end == nil || isSuccess(end)), !o.policyResultOf(pod).counts():
		return ""
	}
	return batchv1.JobFailed
}

// countReleased counts the pods that have lost the finalizer, and removes their UIDs.
func countReleased(status *batchv1.JobStatus, tracked sets.Set[types.UID]) {
	count := func(uids []types.UID, counter *int32) []types.UID {
		var left []types.UID
		for _, uid := range uids {
			if tracked.Has(uid) {
				left = append(left, uid)
			} else {
				*counter++
			}
		}
		return left
	}
	listed := status.UncountedTerminatedPods
	listed.Succeeded = count(listed.Succeeded, &status.Succeeded)
	listed.Failed = count(listed.Failed, &status.Failed)
}

// statusAfterRelease returns the status after the finalizers of all but the tracked pods were
// removed. A decided Job is finished when no pod is terminating and all pods are counted.
func (a *account) statusAfterRelease(written *batchv1.JobStatus, o *observed) batchv1.JobStatus {
	status := *written.DeepCopy()
	countReleased(&status, a.tracked)
	listed := status.UncountedTerminatedPods
	if a.endCondition == nil || a.full || *status.Terminating > 0 || len(listed.Succeeded)+len(listed.Failed) > 0 {
		return status
	}
	setCondition(&status, finalCondition(a.endCondition, o.now))
	if isSuccess(a.endCondition) {
		status.CompletionTime = ptr.To(metav1.NewTime(o.now))
	}
	return status
}
