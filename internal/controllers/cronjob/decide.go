// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/notices"
	"github.com/kindred-project/kindred/internal/schedule"
)

// manyMissed is the number of starts that may be missed without a warning.
const manyMissed = 100

// decision is what to do for a CronJob now.
type decision struct {
	// start is the scheduled time of the Job to create, or zero.
	start time.Time
	// replace holds the Jobs to delete before.
	replace []*batchv1.Job
	// wait is the time until the next scheduled time, or 0 for never.
	wait time.Duration
	// notices are events about this state.
	notices []notices.Notice
}

func (d *decision) warn(reason, format string, args ...any) {
	d.notices = append(d.notices, notices.Warning(reason, fmt.Sprintf(format, args...)))
}

// decide returns what to do. The status must be up to date with the Jobs. If several times have
// passed, only the last one is due.
func decide(cron *batchv1.CronJob, children []*batchv1.Job, now time.Time) (d decision) {
	spec := &cron.Spec
	if cron.DeletionTimestamp != nil {
		return d
	}
	if spec.TimeZone != nil {
		if _, err := time.LoadLocation(*spec.TimeZone); err != nil {
			d.warn("UnknownTimeZone", "invalid timeZone: %q: %s", *spec.TimeZone, err)
			return d
		}
	}
	if ptr.Deref(spec.Suspend, false) {
		return d
	}
	if schedule.NamesZone(spec.Schedule) {
		d.warn("UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", spec.Schedule)
	}
	times, err := schedule.Parse(spec.Schedule, spec.TimeZone)
	if err != nil {
		d.warn("UnparseableSchedule", "unparseable schedule: %q : %s", spec.Schedule, err)
		return d
	}
	since := lastStart(cron)
	next := times.Next(since)
	if next.IsZero() {
		d.warn("InvalidSchedule", "invalid schedule: %s : %s", spec.Schedule, "time difference between two schedules is less than 1 second")
		return d
	}
	due := times.Last(since, now)
	if !due.IsZero() {
		next = times.Next(due)
		d.missed(spec, times, since, now, due)
		d.consider(cron, children, due, now)
	}
	d.wait = next.Sub(now)
	return d
}

// lastStart returns the scheduled time up to which all times are done with.
func lastStart(cron *batchv1.CronJob) time.Time {
	if cron.Status.LastScheduleTime != nil {
		return cron.Status.LastScheduleTime.Time
	}
	return cron.CreationTimestamp.Time
}

// missed warns if too many times have passed. Those before the starting deadline do not count.
func (d *decision) missed(spec *batchv1.CronJobSpec, times schedule.Schedule, since, now, due time.Time) {
	if deadline := startingDeadline(spec); deadline != nil && since.Before(now.Add(-*deadline)) {
		since = now.Add(-*deadline)
	}
	if times.Exceeds(manyMissed, since, now) {
		d.notices = append(d.notices, notices.Warning("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew").About(due))
	}
}

// consider decides whether to start the Job of a time that is due.
func (d *decision) consider(cron *batchv1.CronJob, children []*batchv1.Job, due, now time.Time) {
	if deadline := startingDeadline(&cron.Spec); deadline != nil && due.Add(*deadline).Before(now) {
		d.notices = append(d.notices, notices.Warning("MissSchedule", "Missed scheduled time to start a job: "+due.UTC().Format(time.RFC1123Z)).About(due))
		return
	}
	// Times within one minute share a name.
	name := jobName(cron, due)
	if slices.ContainsFunc(children, func(job *batchv1.Job) bool { return job.Name == name }) {
		return
	}
	switch active := active(cron, children); {
	case cron.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(active) > 0:
		d.notices = append(d.notices, notices.Normal("JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid").About(due))
		return
	case cron.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent:
		if slices.ContainsFunc(active, func(job *batchv1.Job) bool { return ownership.IsHeld(job) }) {
			return // a Job on hold is not deleted, and so not replaced
		}
		d.replace = active
	}
	d.start = due
}

// active returns the Jobs that the status lists.
func active(cron *batchv1.CronJob, children []*batchv1.Job) (out []*batchv1.Job) {
	for _, ref := range cron.Status.Active {
		if job := byUID(children, ref.UID); job != nil {
			out = append(out, job)
		}
	}
	return out
}

func startingDeadline(spec *batchv1.CronJobSpec) *time.Duration {
	if spec.StartingDeadlineSeconds == nil {
		return nil
	}
	return ptr.To(time.Duration(*spec.StartingDeadlineSeconds) * time.Second)
}
