// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// burst bounds the pods that one pass creates or deletes, and counts: so that a huge Job
// reports progress, leaves room for others, and its status stays below some 20 KB.
const burst = 500

// plan is what one pass does to the pods.
type plan struct {
	// verdict is how the Job ends, if it is decided.
	verdict *batchv1.JobCondition
	// end are pods of a Job that is decided: they are deleted, and counted if it failed.
	end []*corev1.Pod
	// drop are pods that are too many: they are deleted, and never counted.
	drop []*corev1.Pod
	// create are the pods to make.
	create []slot
	// wait is when to look again though nothing happens; 0 for never.
	wait time.Duration
}

// slot is the place of one pod in a Job.
type slot struct {
	// index is the completion index; -1 if the Job has none.
	index int
	// replaces is the failed pod of the same index whose failures are to be
	// remembered, if they are counted by index.
	replaces *corev1.Pod
}

// plan decides what to do. Deletions go before creations, which are left to the next
// pass.
func (o *observed) plan() plan {
	p := plan{verdict: o.verdict()}
	if p.verdict != nil {
		p.end = o.active
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
	if missing <= 0 || suspended(o.job) {
		return p
	}
	var wait time.Duration
	p.create, wait = o.slots(min(missing, burst))
	p.wait = sooner(p.wait, wait)
	return p
}

// wanted is how many pods should be active.
func (o *observed) wanted() int {
	parallelism := 1
	if p := o.job.Spec.Parallelism; p != nil {
		parallelism = int(*p)
	}
	switch {
	case suspended(o.job):
		return 0
	case o.job.Spec.Completions != nil:
		return max(0, min(parallelism, o.completions-o.succeeded))
	case o.succeeded > 0:
		// A work queue: one pod has seen its end, the others finish what they do.
		return len(o.active)
	default:
		return parallelism
	}
}

// surplus chooses the pods to drop: all of an Indexed Job that share an index with
// another or have none, and as many others as are too many.
func (o *observed) surplus(n int) []*corev1.Pod {
	if suspended(o.job) {
		return o.active
	}
	keep, drop := o.active, []*corev1.Pod(nil)
	if isIndexed(o.job) {
		keep, drop = o.onePerIndex()
	}
	if more := n - len(drop); more > 0 {
		drop = append(drop, pods.Victims(keep, nil, more, o.now)...)
	}
	return drop[:min(len(drop), burst)]
}

// onePerIndex keeps of each index the pod that has come furthest.
func (o *observed) onePerIndex() (keep, drop []*corev1.Pod) {
	sharing := map[int][]*corev1.Pod{}
	for _, pod := range o.active {
		index, ok := indexOf(pod, o.completions)
		if !ok {
			drop = append(drop, pod)
			continue
		}
		sharing[index] = append(sharing[index], pod)
	}
	victims := map[*corev1.Pod]bool{}
	for _, rivals := range sharing {
		if len(rivals) < 2 {
			continue
		}
		for _, pod := range pods.Victims(rivals, nil, len(rivals)-1, o.now) {
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

// slots returns the places of up to n pods that may be made now, and how long to wait
// for the next of those that may not.
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
	taken := union(o.completed, o.lost, indexesOf(o.active, o.completions))
	if replacesOnlyFailed(o.job) {
		taken = union(taken, indexesOf(pods.Filter(o.pods, pods.IsTerminating), o.completions))
	}
	for _, index := range taken.firstMissing(n, o.completions) {
		last := o.awaiting[index]
		if left := indexBackoff(last).remaining(o.now); left > 0 {
			wait = sooner(wait, left)
			continue
		}
		now = append(now, slot{index, last})
	}
	return now, wait
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
