// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
)

// surplus returns the finished Jobs that exceed the history limits, oldest first. Jobs on hold are
// neither deleted nor counted.
func surplus(spec *batchv1.CronJobSpec, children []*batchv1.Job) []*batchv1.Job {
	var succeeded, failed []*batchv1.Job
	for _, job := range byStart(children) {
		end := jobs.Finished(job)
		switch {
		case end == nil || job.DeletionTimestamp != nil || ownership.IsHeld(job):
		case end.Type == batchv1.JobComplete:
			succeeded = append(succeeded, job)
		default:
			failed = append(failed, job)
		}
	}
	return slices.Concat(beyond(succeeded, spec.SuccessfulJobsHistoryLimit), beyond(failed, spec.FailedJobsHistoryLimit))
}

// beyond returns all but the last n Jobs, or none if there is no limit.
func beyond(finished []*batchv1.Job, n *int32) []*batchv1.Job {
	if n == nil {
		return nil
	}
	return finished[:max(0, len(finished)-int(*n))]
}
