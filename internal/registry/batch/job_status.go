// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// External controllers may write a Job's status (spec.managedBy, KEP-4368), so validation checks
// everything that clients rely on. A rule applies only if the write changes its fields: a status
// that is already invalid, or a spec that has changed, must not block other changes.

// progress is the state of a Job by its conditions.
type progress struct {
	complete, failed, failureTarget, criteriaMet, suspended bool
}

func progressOf(j *batchv1.Job) progress {
	return progress{
		complete: hasTrue(j, batchv1.JobComplete), failed: hasTrue(j, batchv1.JobFailed),
		failureTarget: hasTrue(j, batchv1.JobFailureTarget), criteriaMet: hasTrue(j, batchv1.JobSuccessCriteriaMet),
		suspended: hasTrue(j, batchv1.JobSuspended),
	}
}

func (p progress) finished() bool { return p.complete || p.failed }

func hasTrue(j *batchv1.Job, condition batchv1.JobConditionType) bool {
	return has(j, condition, corev1.ConditionTrue)
}

func has(j *batchv1.Job, condition batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == condition && c.Status == status {
			return true
		}
	}
	return false
}

// statusChecker checks one update of a status; changed selects the rules that apply.
type statusChecker struct {
	*check.Checker
	path        *field.Path
	spec        *batchv1.JobSpec
	status, old *batchv1.JobStatus
	is, was     progress

	finishedChanged, completeChanged, failedChanged      bool
	startChanged, completionChanged                      bool
	completedIndexesChanged, failedIndexesChanged        bool
	activeChanged, readyChanged                          bool
	terminatingChanged, uncountedChanged, resumesThereby bool
}

func validateJobStatus(_ context.Context, to *check.Checker, j, old *batchv1.Job) {
	is, was, status, before := progressOf(j), progressOf(old), &j.Status, &old.Status
	c := &statusChecker{
		Checker: to,
		path:    field.NewPath("status"), spec: &j.Spec, status: status, old: before, is: is, was: was,
		finishedChanged: is.finished() != was.finished(), completeChanged: is.complete != was.complete, failedChanged: is.failed != was.failed,
		startChanged:            !status.StartTime.Equal(before.StartTime),
		completionChanged:       !status.CompletionTime.Equal(before.CompletionTime),
		completedIndexesChanged: status.CompletedIndexes != before.CompletedIndexes,
		failedIndexesChanged:    !ptr.Equal(status.FailedIndexes, before.FailedIndexes),
		activeChanged:           status.Active != before.Active,
		readyChanged:            !ptr.Equal(status.Ready, before.Ready),
		terminatingChanged:      !ptr.Equal(status.Terminating, before.Terminating),
		uncountedChanged:        !equality.Semantic.DeepEqual(status.UncountedTerminatedPods, before.UncountedTerminatedPods),
		resumesThereby:          was.suspended && has(j, batchv1.JobSuspended, corev1.ConditionFalse),
	}
	c.counts()
	c.uncounted()
	c.conditions()
	c.times()
	c.finishedPods()
	c.indexes()
	c.neverBack()
}

func (c *statusChecker) counts() {
	check.NonNegativePtr(c, c.path.Child("active"), &c.status.Active)
	check.NonNegativePtr(c, c.path.Child("succeeded"), &c.status.Succeeded)
	check.NonNegativePtr(c, c.path.Child("failed"), &c.status.Failed)
	check.NonNegativePtr(c, c.path.Child("ready"), c.status.Ready)
	check.NonNegativePtr(c, c.path.Child("terminating"), c.status.Terminating)
	ready := c.status.Ready
	if (c.readyChanged || c.activeChanged) && ready != nil && *ready > c.status.Active {
		c.Invalid(c.path.Child("ready"), *ready, "cannot set more ready pods than active")
	}
}

func (c *statusChecker) uncounted() {
	pods := c.status.UncountedTerminatedPods
	if pods == nil {
		return
	}
	seen := sets.Set[types.UID]{}
	once := func(path *field.Path, uids []types.UID) {
		for i, uid := range uids {
			switch {
			case uid == "":
				c.Invalid(path.Index(i), uid, "must not be empty")
			case seen.Has(uid):
				c.Duplicate(path.Index(i), uid)
			}
			seen.Insert(uid)
		}
	}
	path := c.path.Child("uncountedTerminatedPods")
	once(path.Child("succeeded"), pods.Succeeded)
	once(path.Child("failed"), pods.Failed)
}

// condition refuses a combination of conditions.
func (c *statusChecker) condition(wrong bool, detail string) {
	if wrong {
		c.Invalid(c.path.Child("conditions"), field.OmitValueType{}, detail)
	}
}

func (c *statusChecker) conditions() {
	is, was := c.is, c.was
	criteriaChanged, targetChanged := is.criteriaMet != was.criteriaMet, is.failureTarget != was.failureTarget
	c.condition((c.completeChanged || c.failedChanged) && is.complete && is.failed,
		"cannot set Complete=True and Failed=true conditions")
	c.condition((c.completeChanged || targetChanged) && is.complete && is.failureTarget,
		"cannot set Complete=True and FailureTarget=true conditions")
	c.condition((c.failedChanged || c.failedIndexesChanged) && is.failed && !is.failureTarget,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	c.condition((c.completeChanged || criteriaChanged) && is.complete && !is.criteriaMet,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	c.condition(is.criteriaMet && is.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	c.condition(is.criteriaMet && is.failureTarget, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	c.condition(c.spec.SuccessPolicy != nil && is.complete && !is.criteriaMet,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

func (c *statusChecker) times() {
	start, completion := c.status.StartTime, c.status.CompletionTime
	completionPath := c.path.Child("completionTime")
	if c.completeChanged || c.completionChanged {
		switch {
		case completion != nil && !c.is.complete:
			c.Invalid(completionPath, completion, "cannot set completionTime when there is no Complete=True condition")
		case completion == nil && c.is.complete:
			c.Required(completionPath, "completionTime is required for Complete jobs")
		}
	}
	if (c.startChanged || c.completionChanged) && start != nil && completion != nil && completion.Before(start) {
		c.Invalid(completionPath, completion, "must be equal to or after `startTime`")
	}
	// A job without work is complete without ever having been resumed.
	neverStarts := ptr.Deref(c.spec.Suspend, false) && ptr.Deref(c.spec.Completions, 1) == 0
	if (c.finishedChanged || c.startChanged) && c.is.finished() && start == nil && !neverStarts {
		c.Required(c.path.Child("startTime"), "startTime is required for finished job")
	}
}

// finishedPods requires that a finished Job has no active or uncounted pods.
func (c *statusChecker) finishedPods() {
	if !c.is.finished() {
		return
	}
	if (c.finishedChanged || c.activeChanged) && c.status.Active > 0 {
		c.Invalid(c.path.Child("active"), c.status.Active, "active>0 is invalid for finished job")
	}
	if (c.finishedChanged || c.terminatingChanged) && ptr.Deref(c.status.Terminating, 0) > 0 {
		c.Invalid(c.path.Child("terminating"), *c.status.Terminating, "terminating>0 is invalid for finished job")
	}
	pods := c.status.UncountedTerminatedPods
	if (c.finishedChanged || c.uncountedChanged) && pods != nil && len(pods.Failed)+len(pods.Succeeded) > 0 {
		c.Invalid(c.path.Child("uncountedTerminatedPods"), pods, "must be empty for finished job")
	}
}

func (c *statusChecker) indexes() {
	completed, failed, completions := c.status.CompletedIndexes, c.status.FailedIndexes, c.spec.Completions
	completedPath, failedPath := c.path.Child("completedIndexes"), c.path.Child("failedIndexes")
	limitPerIndex := c.spec.BackoffLimitPerIndex != nil
	if c.completedIndexesChanged {
		c.list(completedPath, "completedIndexes", &completed)
		if completed != "" && !isIndexed(c.spec) {
			c.Invalid(completedPath, completed, "cannot set non-empty completedIndexes when non-indexed completion mode")
		}
	}
	if failed == nil {
		return
	}
	if c.failedIndexesChanged && limitPerIndex {
		c.list(failedPath, "failedIndexes", failed)
	}
	if c.failedIndexesChanged && !limitPerIndex {
		c.Invalid(failedPath, *failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if completions == nil || !c.failedIndexesChanged && !c.completedIndexesChanged {
		return
	}
	if index, shared := sharedIndex(validIntervals(completed, *completions), validIntervals(*failed, *completions)); shared {
		c.Invalid(failedPath, *failed, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index))
	}
}

func (c *statusChecker) list(path *field.Path, name string, list *string) {
	if c.spec.Completions == nil {
		return
	}
	if _, err := countIndexes(*list, *c.spec.Completions); err != nil {
		c.Invalid(path, *list, fmt.Sprintf("error parsing %s: %s", name, err))
	}
}

// neverBack forbids to remove final conditions, to decrease counts, and to change times.
func (c *statusChecker) neverBack() {
	is, was := c.is, c.was
	c.condition(was.failed && !is.failed, "cannot disable the terminal Failed=True condition")
	c.condition(was.complete && !is.complete, "cannot disable the terminal Complete=True condition")
	c.condition(was.failureTarget && !is.failureTarget, "cannot disable the terminal FailureTarget=True condition")
	c.condition(was.criteriaMet && !is.criteriaMet, "cannot disable the SuccessCriteriaMet=True condition")
	c.condition(was.complete && !was.criteriaMet && is.criteriaMet,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	if c.status.Failed < c.old.Failed {
		c.Invalid(c.path.Child("failed"), c.status.Failed, "cannot decrease the failed counter")
	}
	// An indexed Job whose pods all run in parallel can be scaled down.
	scalable := isIndexed(c.spec) && ptr.Equal(c.spec.Completions, c.spec.Parallelism)
	if c.status.Succeeded < c.old.Succeeded && !scalable {
		c.Invalid(c.path.Child("succeeded"), c.status.Succeeded, "cannot decrease the succeeded counter")
	}
	if c.completionChanged && c.status.CompletionTime != nil && c.old.CompletionTime != nil {
		c.Invalid(c.path.Child("completionTime"), c.status.CompletionTime, "field is immutable")
	}
	if c.startChanged && c.old.StartTime != nil && !c.resumesThereby && !ptr.Deref(c.spec.Suspend, false) {
		c.Invalid(c.path.Child("startTime"), c.status.StartTime, "field is immutable for unsuspended job once set")
	}
}
