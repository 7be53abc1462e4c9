// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// observed is a Job and its pods as one Reconcile sees them. It is read-only.
type observed struct {
	job         *batchv1.Job
	completions int
	now         time.Time
	// start is when the Job was started or resumed; nil while it is suspended.
	start *metav1.Time

	pods, active []*corev1.Pod
	terminating  int
	// uncounted holds the UIDs in status.uncountedTerminatedPods.
	uncounted struct{ succeeded, failed sets.Set[types.UID] }
	// succeeded and failed are the Job's counters, including the newly ended pods.
	succeeded, failed int
	backoff           backoff

	// For an Indexed Job: the completed indexes in the status, all completed indexes, and
	// with backoffLimitPerIndex the failed indexes.
	completedBefore, completed, failedIndexes indexes
	// awaiting holds, by index, the failed pod that stays until its replacement is created,
	// which inherits its number of failures.
	awaiting map[int]*corev1.Pod
}

// observe classifies the pods of a Job. past is the backoff of the last Reconcile.
func observe(job *batchv1.Job, claimed []*corev1.Pod, past backoff, now time.Time) *observed {
	o := &observed{
		job: job, completions: int(ptr.Deref(job.Spec.Completions, 0)), now: now, start: job.Status.StartTime,
		pods: slices.Clone(claimed), active: pods.Filter(claimed, pods.IsActive), terminating: len(pods.Filter(claimed, pods.IsTerminating)),
	}
	if o.start == nil && !isSuspended(job) {
		o.start = ptr.To(metav1.NewTime(now))
	}
	// Indexes are reported in order, even if one Reconcile cannot count all pods.
	slices.SortStableFunc(o.pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(annotatedCount(a, batchv1.JobCompletionIndexAnnotation), annotatedCount(b, batchv1.JobCompletionIndexAnnotation))
	})
	listed := ptr.Deref(job.Status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	o.uncounted.succeeded, o.uncounted.failed = sets.New(listed.Succeeded...), sets.New(listed.Failed...)
	succeeded := o.newlyEnded(o.uncounted.succeeded, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	failed := o.newlyEnded(o.uncounted.failed, o.isFailed)
	counting := pods.Filter(failed, func(pod *corev1.Pod) bool { return o.policyResultOf(pod).counts() })
	o.succeeded = int(job.Status.Succeeded) + len(listed.Succeeded) + len(succeeded)
	o.failed = int(job.Status.Failed) + len(listed.Failed) + len(counting)
	o.backoff = past.after(succeeded, failed)
	if isIndexed(job) {
		o.observeIndexes()
	}
	return o
}

// observeIndexes classifies the indexes. The status has precedence, and success over failure:
// the API refuses an index that is both.
func (o *observed) observeIndexes() {
	limited := o.job.Spec.BackoffLimitPerIndex != nil
	if limited {
		o.failedIndexes = parseIndexes(ptr.Deref(o.job.Status.FailedIndexes, ""), o.completions)
	}
	o.completedBefore = parseIndexes(o.job.Status.CompletedIndexes, o.completions)
	ended := o.trackedOutside(o.failedIndexes, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded && !o.uncounted.failed.Has(pod.UID)
	})
	o.completed = union(o.completedBefore, indexesOf(ended, o.completions))
	o.succeeded = o.completed.count()
	if limited {
		o.failedIndexes = union(o.failedIndexes, indexesOf(o.trackedOutside(o.completed, o.failsIndex), o.completions))
		o.awaiting = o.awaitingReplacement()
	}
}

// trackedOutside returns the tracked pods for which match returns true and whose index is not in
// the set.
func (o *observed) trackedOutside(set indexes, match func(*corev1.Pod) bool) []*corev1.Pod {
	return pods.Filter(o.pods, func(pod *corev1.Pod) bool {
		index, _ := indexOf(pod, o.completions)
		return isTracked(pod) && !set.contains(index) && match(pod)
	})
}

// failsIndex reports whether the failure of this pod fails its index.
func (o *observed) failsIndex(pod *corev1.Pod) bool {
	if !o.isFailed(pod) {
		return false
	}
	h := o.policyResultOf(pod)
	before, _ := indexFailures(pod)
	return h.action == batchv1.PodFailurePolicyActionFailIndex || h.counts() && before >= int(*o.job.Spec.BackoffLimitPerIndex)
}

// awaitingReplacement returns the last failed pod of each unfinished index without a pod.
func (o *observed) awaitingReplacement() map[int]*corev1.Pod {
	last := map[int]*corev1.Pod{}
	busy := union(o.completed, o.failedIndexes, indexesOf(o.active, o.completions))
	for _, pod := range o.newlyEnded(nil, o.isFailed) {
		index, _ := indexOf(pod, o.completions)
		if !busy.contains(index) && (last[index] == nil || supersedes(pod, last[index])) {
			last[index] = pod
		}
	}
	return last
}

func supersedes(pod, other *corev1.Pod) bool {
	_, failures := indexFailures(pod)
	_, others := indexFailures(other)
	return failures >= others && !endedAt(pod).Before(endedAt(other))
}

// newlyEnded returns the pods for which match returns true and that must be added to the status:
// they are tracked, not recorded yet, and in an Indexed Job have an index.
func (o *observed) newlyEnded(recorded sets.Set[types.UID], match func(*corev1.Pod) bool) []*corev1.Pod {
	return pods.Filter(o.pods, func(pod *corev1.Pod) bool {
		return isTracked(pod) && !recorded.Has(pod.UID) && o.isRelevant(pod) && match(pod)
	})
}

// isRelevant reports whether the pod counts for the Job. In an Indexed Job, a pod without an
// index, or with one beyond the completions, does not.
func (o *observed) isRelevant(pod *corev1.Pod) bool {
	_, ok := indexOf(pod, o.completions)
	return ok || !isIndexed(o.job)
}

// isFailed reports whether the pod counts as failed. By default a terminating pod does, and is
// replaced immediately (KEP-3939).
func (o *observed) isFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || !replacesOnlyFailed(o.job) && pods.IsTerminating(pod)
}

func (o *observed) policyResultOf(pod *corev1.Pod) policyResult {
	return applyFailurePolicy(o.job.Spec.PodFailurePolicy, pod)
}

func isIndexed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func isSuspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

func replacesOnlyFailed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed
}

// isTracked reports whether the pod has the finalizer, so that it may not be counted yet.
func isTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func countReady(all []*corev1.Pod) int { return len(pods.Filter(all, pods.IsReady)) }
