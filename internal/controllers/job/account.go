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

// outcome is what has become of a plan.
type outcome struct {
	created        int
	ended, dropped []*corev1.Pod
}

// account is the first half of the books of one pass.
type account struct {
	// status is to be written before the finalizers are released.
	status batchv1.JobStatus
	// release are the pods whose finalizers go then.
	release []*corev1.Pod
	// verdict is how the Job ends, if it is decided and nothing is in the way.
	verdict *batchv1.JobCondition
	// tracked are the pods that have the finalizer still.
	tracked sets.Set[types.UID]
	// full says that there is more to count than one pass does.
	full bool
}

// account notes what has ended, and chooses whose finalizer is of no more use.
func (o *observed) account(p plan, done outcome) *account {
	a := &account{status: *o.job.Status.DeepCopy(), verdict: p.verdict, tracked: sets.Set[types.UID]{}}
	a.status.StartTime = o.start
	if a.status.UncountedTerminatedPods == nil {
		a.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	deleted := slices.Concat(done.ended, done.dropped)
	active := len(o.active) + done.created - len(deleted)
	a.status.Active = int32(active)
	a.status.Ready = ptr.To(int32(countReady(o.active) - countReady(deleted)))
	a.status.Terminating = ptr.To(int32(o.terminating + len(deleted)))
	o.conclude(a, p, done, active)
	o.note(a, done.dropped)
	if isIndexed(o.job) {
		a.status.Succeeded = int32(o.completed.count())
		a.status.CompletedIndexes = o.completed.String()
		a.status.FailedIndexes = nil
		if o.job.Spec.BackoffLimitPerIndex != nil {
			a.status.FailedIndexes = ptr.To(o.lost.String())
		}
	}
	if a.verdict != nil {
		setCondition(&a.status, a.verdict)
	}
	return a
}

// conclude completes or postpones the verdict, and says whether the Job is suspended.
func (o *observed) conclude(a *account, p plan, done outcome, active int) {
	if p.verdict != nil {
		if len(done.ended) < len(p.end) {
			a.verdict = nil // Pods are left that may yet end otherwise.
		}
		return
	}
	if a.verdict = o.completedBy(active); a.verdict != nil || o.job.DeletionTimestamp != nil {
		return
	}
	if suspended(o.job) {
		if setCondition(&a.status, newCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", o.now)) {
			a.status.StartTime = nil
		}
		return
	}
	// The deadline is about the time since the Job was last resumed.
	if setCondition(&a.status, newCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", o.now)) {
		a.status.StartTime = ptr.To(metav1.NewTime(o.now))
	}
}

// note lists the UIDs of what has ended, and whom to release.
func (o *observed) note(a *account, dropped []*corev1.Pod) {
	gone := sets.Set[types.UID]{}
	for _, pod := range dropped {
		gone.Insert(pod.UID)
	}
	for _, pod := range o.pods {
		if isTracked(pod) && !gone.Has(pod.UID) {
			a.tracked.Insert(pod.UID)
		}
	}
	settle(&a.status, a.tracked)
	listed := a.status.UncountedTerminatedPods
	newIndexes := 0
	for _, pod := range o.pods {
		if !a.tracked.Has(pod.UID) || !o.releasable(pod, a.verdict) {
			continue
		}
		a.release = append(a.release, pod)
		switch o.countsAs(pod, a.verdict) {
		case batchv1.JobComplete:
			if isIndexed(o.job) {
				newIndexes++ // The index in the status does what the UID does elsewhere.
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

// releasable reports whether nothing more is to be learned from the pod.
func (o *observed) releasable(pod *corev1.Pod, verdict *batchv1.JobCondition) bool {
	switch {
	case o.job.DeletionTimestamp != nil, verdict != nil, pod.Status.Phase == corev1.PodSucceeded:
		return true
	case !o.isFailed(pod):
		return false
	}
	index, _ := indexOf(pod, o.completions)
	awaiting := o.awaiting[index]
	return awaiting == nil || awaiting.UID != pod.UID
}

// countsAs says to which counter a pod is to be added that the status does not name
// yet: that of JobComplete, that of JobFailed, or "" for none. When a Job fails, so does
// each pod that it has left.
func (o *observed) countsAs(pod *corev1.Pod, verdict *batchv1.JobCondition) batchv1.JobConditionType {
	switch {
	case !o.isOfUse(pod), o.uncounted.failed.Has(pod.UID), o.uncounted.succeeded.Has(pod.UID):
		return ""
	case pod.Status.Phase == corev1.PodSucceeded:
		if index, _ := indexOf(pod, o.completions); isIndexed(o.job) && o.before.has(index) {
			return ""
		}
		return batchv1.JobComplete
	case !o.isFailed(pod) && (verdict == nil || isSuccess(verdict)), !o.handle(pod).counts():
		return ""
	}
	return batchv1.JobFailed
}

// settle moves the UIDs of pods that are not tracked any more to the counters.
func settle(status *batchv1.JobStatus, tracked sets.Set[types.UID]) {
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

// closing is the second half of the books: the status after the finalizers were
// released from all but those that are tracked still. A decided Job is finished when
// no pod terminates and all are counted.
func (a *account) closing(written *batchv1.JobStatus, o *observed) batchv1.JobStatus {
	status := *written.DeepCopy()
	settle(&status, a.tracked)
	listed := status.UncountedTerminatedPods
	if a.verdict == nil || a.full || *status.Terminating > 0 || len(listed.Succeeded)+len(listed.Failed) > 0 {
		return status
	}
	setCondition(&status, finalOf(a.verdict, o.now))
	if isSuccess(a.verdict) {
		status.CompletionTime = ptr.To(metav1.NewTime(o.now))
	}
	return status
}
