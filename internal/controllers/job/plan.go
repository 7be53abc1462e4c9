// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// burst limits the pods that one Reconcile creates, drops or counts. A large Job then reports its
// progress, leaves capacity for other Jobs, and has a status of at most about 20 KB.
const burst = 500

// plan is what one Reconcile does.
type plan struct {
	// endCondition is SuccessCriteriaMet or FailureTarget, if the end of the Job is decided.
	endCondition *batchv1.JobCondition
	// terminate holds the active pods of a decided Job. They are deleted, and counted if the
	// Job failed.
	terminate []*corev1.Pod
	// drop holds surplus pods. They are deleted, and never counted.
	drop []*corev1.Pod
	// create holds the places of the pods to create.
	create []slot
	// wait is the time until the Job is requeued, or 0 if it need not be.
	wait time.Duration
}

// slot is the place of one pod in a Job.
type slot struct {
	// index is the completion index, or -1 if the Job is not indexed.
	index int
	// replaces is the last failed pod of the index, or nil. If failures are counted by index, the
	// new pod inherits its number of failures.
	replaces *corev1.Pod
}

// plan decides what to do. If there are deletions, creations are left to the next Reconcile.
func (o *observed) plan() plan {
	p := plan{endCondition: o.decideEnd()}
	if p.endCondition != nil {
		p.terminate = o.active
		return p
	}
	if left, limited := o.deadline(); limited {
		p.wait = left
	}
	if o.job.DeletionTimestamp != nil {
		return p
	}
	want := o.wanted()
	if p.drop = o.surplus(len(o.active) - want); len(p.drop) > 0 {
		return p
	}
	missing := want - len(o.active)
	if replacesOnlyFailed(o.job) {
		missing -= o.terminating
	}
	if missing <= 0 || isSuspended(o.job) {
		return p
	}
	var wait time.Duration
	p.create, wait = o.slots(min(missing, burst))
	p.wait = control.SoonerOf(p.wait, wait)
	return p
}

// wanted returns how many pods should be active.
func (o *observed) wanted() int {
	parallelism := 1
	if p := o.job.Spec.Parallelism; p != nil {
		parallelism = int(*p)
	}
	switch {
	case isSuspended(o.job):
		return 0
	case o.job.Spec.Completions != nil:
		return max(0, min(parallelism, o.completions-o.succeeded))
	case o.succeeded > 0:
		// A work queue: one pod has succeeded, and the others finish their work.
		return len(o.active)
	default:
		return parallelism
	}
}

// surplus selects the pods to drop. In an Indexed Job these are first the pods without a valid index
// or with a duplicate one; then others, until as many are dropped as exceed the wanted number. A
// suspended Job drops all pods at once.
func (o *observed) surplus(excess int) []*corev1.Pod {
	if isSuspended(o.job) {
		return o.active
	}
	keep, drop := o.active, []*corev1.Pod(nil)
	if isIndexed(o.job) {
		keep, drop = o.onePerIndex()
	}
	if more := excess - len(drop); more > 0 {
		drop = append(drop, pods.Victims(keep, nil, more, o.now)...)
	}
	return drop[:min(len(drop), burst)]
}

// onePerIndex keeps one pod of each index, the one that pods.Victims ranks last, and drops the others
// and those without a valid index.
func (o *observed) onePerIndex() (keep, drop []*corev1.Pod) {
	byIndex := map[int][]*corev1.Pod{}
	for _, pod := range o.active {
		index, ok := indexOf(pod, o.completions)
		if !ok {
			drop = append(drop, pod)
			continue
		}
		byIndex[index] = append(byIndex[index], pod)
	}
	victims := map[*corev1.Pod]bool{}
	for _, duplicates := range byIndex {
		if len(duplicates) < 2 {
			continue
		}
		for _, pod := range pods.Victims(duplicates, nil, len(duplicates)-1, o.now) {
			victims[pod] = true
		}
	}
	for _, pod := range o.active {
		_, ok := indexOf(pod, o.completions)
		switch {
		case victims[pod]:
			drop = append(drop, pod)
		case ok:
			keep = append(keep, pod)
		}
	}
	return keep, drop
}

// slots returns the places of up to n pods to create now, and how long the backoff delays the
// next one.
func (o *observed) slots(n int) (now []slot, wait time.Duration) {
	perIndex := o.job.Spec.BackoffLimitPerIndex != nil
	if left := o.backoff.remaining(o.now); left > 0 && !perIndex {
		return nil, left
	}
	if !isIndexed(o.job) {
		now = make([]slot, n)
		for i := range now {
			now[i].index = -1
		}
		return now, 0
	}
	taken := union(o.completed, o.failedIndexes, indexesOf(o.active, o.completions))
	if replacesOnlyFailed(o.job) {
		taken = union(taken, indexesOf(pods.Filter(o.pods, pods.IsTerminating), o.completions))
	}
	for _, index := range taken.firstMissing(n, o.completions) {
		last := o.awaiting[index]
		if left := indexBackoff(last).remaining(o.now); left > 0 {
			wait = control.SoonerOf(wait, left)
			continue
		}
		now = append(now, slot{index, last})
	}
	return now, wait
}
