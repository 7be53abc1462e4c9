// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
	"github.com/kindred-project/kindred/internal/controllers/framework/notices"
)

// sights are the events about what observe has seen.
type sights struct {
	// changes are recorded when the status is written; unexpected Jobs once while they run.
	changes, unexpected []notices.Notice
}

// observe returns the status that follows from the Jobs of the CronJob.
func observe(cron *batchv1.CronJob, children []*batchv1.Job) (batchv1.CronJobStatus, sights) {
	status, seen := *cron.Status.DeepCopy(), sights{}
	status.Active = nil
	listed := map[types.UID]bool{}
	for _, ref := range cron.Status.Active {
		listed[ref.UID] = true
		switch job := byUID(children, ref.UID); {
		case job == nil:
			seen.changes = append(seen.changes, notices.Normal("MissingJob", "Active job went missing: "+ref.Name))
		case jobs.Finished(job) != nil:
			seen.changes = append(seen.changes, notices.Normal("SawCompletedJob", fmt.Sprintf("Saw completed job: %s, condition: %v", ref.Name, jobs.Finished(job).Type)))
		default:
			status.Active = append(status.Active, ref)
		}
	}
	for _, job := range byStart(children) {
		recordSuccess(&status, job)
		scheduled, own := scheduledTime(cron, job)
		if own && (status.LastScheduleTime == nil || status.LastScheduleTime.Time.Before(scheduled)) {
			status.LastScheduleTime = &metav1.Time{Time: scheduled}
		}
		switch {
		case listed[job.UID] || jobs.Finished(job) != nil || job.DeletionTimestamp != nil:
		case own: // the process crashed before it reported the Job
			status.Active = append(status.Active, reference(job))
		default:
			seen.unexpected = append(seen.unexpected, notices.Warning("UnexpectedJob", "Saw a job that the controller did not create or forgot: "+job.Name))
		}
	}
	return status, seen
}

// recordSuccess updates lastSuccessfulTime if the Job has succeeded. The Job need not be one that
// the controller started.
func recordSuccess(status *batchv1.CronJobStatus, job *batchv1.Job) {
	end, at := jobs.Finished(job), job.Status.CompletionTime
	if end == nil || end.Type != batchv1.JobComplete || at == nil {
		return
	}
	if status.LastSuccessfulTime == nil || status.LastSuccessfulTime.Before(at) {
		status.LastSuccessfulTime = at
	}
}

// byStart returns the Jobs sorted by their start, those that have not started last.
func byStart(children []*batchv1.Job) []*batchv1.Job {
	return slices.SortedFunc(slices.Values(children), func(a, b *batchv1.Job) int {
		x, y := a.Status.StartTime, b.Status.StartTime
		switch {
		case x == nil && y != nil:
			return 1
		case x != nil && y == nil:
			return -1
		case x != nil && !x.Equal(y):
			return x.Compare(y.Time)
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

func byUID(children []*batchv1.Job, uid types.UID) *batchv1.Job {
	for _, job := range children {
		if job.UID == uid {
			return job
		}
	}
	return nil
}

// reference returns the reference by which the status lists a Job.
func reference(job *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind: "Job", APIVersion: batchv1.SchemeGroupVersion.String(),
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
	}
}
