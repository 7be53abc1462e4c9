// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"cmp"
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// SetDefaults_Job defaults a Job to one pod and one completion. Completions stay unset if only
// parallelism is set: the pods then share a work queue.
func SetDefaults_Job(obj *batchv1.Job) {
	spec := &obj.Spec
	if spec.Parallelism == nil {
		spec.Completions = cmp.Or(spec.Completions, new(int32(1)))
		spec.Parallelism = new(int32(1))
	}
	if spec.BackoffLimit == nil {
		spec.BackoffLimit = new(defaultBackoffLimit(spec))
	}
	// The Job shares the label map of the template: labels that are generated later for the
	// template appear on the Job too.
	if len(obj.Labels) == 0 && spec.Template.Labels != nil {
		obj.Labels = spec.Template.Labels
	}
	spec.CompletionMode = cmp.Or(spec.CompletionMode, new(batchv1.NonIndexedCompletion))
	spec.Suspend = cmp.Or(spec.Suspend, new(false))
	spec.PodReplacementPolicy = cmp.Or(spec.PodReplacementPolicy, new(defaultReplacement(spec)))
	spec.ManualSelector = cmp.Or(spec.ManualSelector, new(false))
}

// defaultBackoffLimit sets no limit for the Job if it has a limit per index.
func defaultBackoffLimit(spec *batchv1.JobSpec) int32 {
	if spec.BackoffLimitPerIndex != nil {
		return math.MaxInt32
	}
	return 6
}

// defaultReplacement waits for the end of a pod if a failure policy needs its exit code.
func defaultReplacement(spec *batchv1.JobSpec) batchv1.PodReplacementPolicy {
	if spec.PodFailurePolicy != nil {
		return batchv1.Failed
	}
	return batchv1.TerminatingOrFailed
}

func SetDefaults_CronJob(obj *batchv1.CronJob) {
	spec := &obj.Spec
	spec.ConcurrencyPolicy = cmp.Or(spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	spec.Suspend = cmp.Or(spec.Suspend, new(false))
	spec.SuccessfulJobsHistoryLimit = cmp.Or(spec.SuccessfulJobsHistoryLimit, new(int32(3)))
	spec.FailedJobsHistoryLimit = cmp.Or(spec.FailedJobsHistoryLimit, new(int32(1)))
}

func SetDefaults_PodFailurePolicyOnPodConditionsPattern(obj *batchv1.PodFailurePolicyOnPodConditionsPattern) {
	obj.Status = cmp.Or(obj.Status, corev1.ConditionTrue)
}
