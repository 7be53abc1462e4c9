// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
)

// decideEnd returns the condition SuccessCriteriaMet or FailureTarget if the end of the Job is
// decided, or nil. An earlier decision stands, and failure has precedence over success. Reaching
// all completions is decided in account.go, when no pod remains.
func (o *observed) decideEnd() *batchv1.JobCondition {
	for _, decided := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if c := jobs.Condition(&o.job.Status, decided); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	if message := o.failJob(); message != "" {
		return o.failure(batchv1.JobReasonPodFailurePolicy, message)
	}
	total, limit := o.failedIndexes.count(), o.job.Spec.MaxFailedIndexes
	switch left, limited := o.deadline(); {
	case o.failed > int(ptr.Deref(o.job.Spec.BackoffLimit, 6)) || o.restartsTooOften():
		return o.failure(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case limited && left <= 0:
		return o.failure(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case limit != nil && total > int(*limit):
		return o.failure(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
	case total > 0 && total+o.completed.count() >= o.completions:
		return o.failure(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	}
	if rule, met := successRule(o.job.Spec.SuccessPolicy, o.completed, o.completions); met {
		return o.success(batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", rule))
	}
	return nil
}

// failJob returns why a failed pod fails the Job immediately, or "".
func (o *observed) failJob() string {
	for _, pod := range o.pods {
		if !o.isFailed(pod) {
			continue
		}
		if h := o.policyResultOf(pod); h.action == batchv1.PodFailurePolicyActionFailJob {
			return h.message
		}
	}
	return ""
}

// restartsTooOften reports whether container restarts have reached backoffLimit.
func (o *observed) restartsTooOften() bool {
	if o.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	var restarts int32
	for _, pod := range o.pods {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, status := range pod.Status.InitContainerStatuses {
			restarts += status.RestartCount
		}
		for _, status := range pod.Status.ContainerStatuses {
			restarts += status.RestartCount
		}
	}
	return restarts >= max(1, ptr.Deref(o.job.Spec.BackoffLimit, 6))
}

// deadline returns how much of activeDeadlineSeconds remains. A suspended Job has no deadline.
func (o *observed) deadline() (left time.Duration, limited bool) {
	seconds := o.job.Spec.ActiveDeadlineSeconds
	if seconds == nil || o.start == nil || isSuspended(o.job) {
		return 0, false
	}
	return time.Duration(*seconds)*time.Second - o.now.Sub(o.start.Time), true
}

// completedBy returns the success of a Job that has reached its completions and has no active
// pod. Without spec.completions, one success is enough.
func (o *observed) completedBy(active int) *batchv1.JobCondition {
	want := 1
	if o.job.Spec.Completions != nil {
		want = o.completions
	}
	if o.succeeded < want || active > 0 {
		return nil
	}
	return o.success(batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
}

func (o *observed) success(reason, message string) *batchv1.JobCondition {
	return newCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, reason, message, o.now)
}

func (o *observed) failure(reason, message string) *batchv1.JobCondition {
	return newCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message, o.now)
}

// finalCondition returns the condition Complete or Failed for an end that decideEnd returned.
func finalCondition(end *batchv1.JobCondition, now time.Time) *batchv1.JobCondition {
	kind := batchv1.JobFailed
	if isSuccess(end) {
		kind = batchv1.JobComplete
	}
	return newCondition(kind, corev1.ConditionTrue, end.Reason, end.Message, now)
}

func isSuccess(end *batchv1.JobCondition) bool {
	return end.Type == batchv1.JobSuccessCriteriaMet
}

func newCondition(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) *batchv1.JobCondition {
	at := metav1.NewTime(now)
	return &batchv1.JobCondition{Type: kind, Status: status, LastProbeTime: at, LastTransitionTime: at, Reason: reason, Message: message}
}

// setCondition sets a condition and reports whether it changed. It does not add a condition with
// status False.
func setCondition(status *batchv1.JobStatus, condition *batchv1.JobCondition) bool {
	old := jobs.Condition(status, condition.Type)
	switch {
	case old == nil && condition.Status == corev1.ConditionFalse:
		return false
	case old == nil:
		status.Conditions = append(status.Conditions, *condition)
		return true
	case old.Status == condition.Status && old.Reason == condition.Reason && old.Message == condition.Message:
		return false
	}
	*old = *condition
	return true
}
