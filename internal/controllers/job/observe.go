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

// observed is a Job and its pods as one pass sees them. Nothing in it is written.
type observed struct {
	job         *batchv1.Job
	completions int
	now         time.Time
	// start is since when the Job may run; nil while it is suspended.
	start *metav1.Time

	pods, active []*corev1.Pod
	terminating  int
	// uncounted are the UIDs that the status names.
	uncounted struct{ succeeded, failed sets.Set[types.UID] }
	// succeeded and failed are the Job's counters with all that has ended since.
	succeeded, failed int
	backoff           backoff

	// Of an Indexed Job: the indexes that the status had as completed, those that are
	// now, and with backoffLimitPerIndex those that failed for good.
	before, completed, lost indexes
	// awaiting is, by index, the failed pod that stays until its replacement is made,
	// to hand it the number of failures.
	awaiting map[int]*corev1.Pod
}

// observe sorts out what the pods of a Job mean. The backoff is that of the last pass.
func observe(job *batchv1.Job, mine []*corev1.Pod, past backoff, now time.Time) *observed {
	o := &observed{
		job: job, completions: int(ptr.Deref(job.Spec.Completions, 0)), now: now, start: job.Status.StartTime,
		pods: slices.Clone(mine), active: pods.Filter(mine, pods.IsActive), terminating: len(pods.Filter(mine, pods.IsTerminating)),
	}
	if o.start == nil && !suspended(job) {
		o.start = ptr.To(metav1.NewTime(now))
	}
	// So that indexes are reported in order, however many pods one pass can count.
	slices.SortStableFunc(o.pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(annotatedCount(a, batchv1.JobCompletionIndexAnnotation), annotatedCount(b, batchv1.JobCompletionIndexAnnotation))
	})
	listed := ptr.Deref(job.Status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	o.uncounted.succeeded, o.uncounted.failed = sets.New(listed.Succeeded...), sets.New(listed.Failed...)
	succeeded := o.news(o.uncounted.succeeded, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	failed := o.news(o.uncounted.failed, o.isFailed)
	counting := pods.Filter(failed, func(pod *corev1.Pod) bool { return o.handle(pod).counts() })
	o.succeeded = int(job.Status.Succeeded) + len(listed.Succeeded) + len(succeeded)
	o.failed = int(job.Status.Failed) + len(listed.Failed) + len(counting)
	o.backoff = past.after(succeeded, failed)
	if isIndexed(job) {
		o.observeIndexes()
	}
	return o
}

// observeIndexes sorts out the indexes. What the status says of one stands, and a success
// goes before a failure: an index that were both is refused by the API, for ever.
func (o *observed) observeIndexes() {
	limited := o.job.Spec.BackoffLimitPerIndex != nil
	if limited {
		o.lost = parseIndexes(ptr.Deref(o.job.Status.FailedIndexes, ""), o.completions)
	}
	o.before = parseIndexes(o.job.Status.CompletedIndexes, o.completions)
	ended := o.trackedOutside(o.lost, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded && !o.uncounted.failed.Has(pod.UID)
	})
	o.completed = union(o.before, indexesOf(ended, o.completions))
	o.succeeded = o.completed.count()
	if limited {
		o.lost = union(o.lost, indexesOf(o.trackedOutside(o.completed, o.losesIndex), o.completions))
		o.awaiting = o.awaitingReplacement()
	}
}

// trackedOutside returns the tracked pods for which is holds and whose index is not in
// the set.
func (o *observed) trackedOutside(set indexes, is func(*corev1.Pod) bool) []*corev1.Pod {
	return pods.Filter(o.pods, func(pod *corev1.Pod) bool {
		index, _ := indexOf(pod, o.completions)
		return isTracked(pod) && !set.has(index) && is(pod)
	})
}

// losesIndex reports whether with this pod its index has failed for good.
func (o *observed) losesIndex(pod *corev1.Pod) bool {
	if !o.isFailed(pod) {
		return false
	}
	h := o.handle(pod)
	before, _ := indexFailures(pod)
	return h.action == batchv1.PodFailurePolicyActionFailIndex || h.counts() && before >= int(*o.job.Spec.BackoffLimitPerIndex)
}

// awaitingReplacement finds the last failed pod of each index that goes on and has no
// pod.
func (o *observed) awaitingReplacement() map[int]*corev1.Pod {
	last := map[int]*corev1.Pod{}
	busy := union(o.completed, o.lost, indexesOf(o.active, o.completions))
	for _, pod := range o.news(nil, o.isFailed) {
		index, _ := indexOf(pod, o.completions)
		if !busy.has(index) && (last[index] == nil || supersedes(pod, last[index])) {
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

// news are the pods for which is holds, that the status does not name yet and that it
// must: they are tracked and, of an Indexed Job, have an index.
func (o *observed) news(named sets.Set[types.UID], is func(*corev1.Pod) bool) []*corev1.Pod {
	return pods.Filter(o.pods, func(pod *corev1.Pod) bool { return isTracked(pod) && !named.Has(pod.UID) && o.isOfUse(pod) && is(pod) })
}

// isOfUse reports whether what becomes of the pod matters to the Job: a pod of an
// Indexed Job without an index, or with one beyond the completions, does nothing for it.
func (o *observed) isOfUse(pod *corev1.Pod) bool {
	_, ok := indexOf(pod, o.completions)
	return ok || !isIndexed(o.job)
}

// isFailed reports whether the pod counts as failed. By default that includes one
// which is asked to stop, so that it is replaced at once (KEP-3939).
func (o *observed) isFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || !replacesOnlyFailed(o.job) && pods.IsTerminating(pod)
}

func (o *observed) handle(pod *corev1.Pod) handling {
	return handle(o.job.Spec.PodFailurePolicy, pod)
}

func isIndexed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func suspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

func replacesOnlyFailed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed
}

// isTracked reports whether the pod has not been counted yet, or not for certain.
func isTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func countReady(of []*corev1.Pod) int { return len(pods.Filter(of, pods.IsReady)) }
