// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/notices"
)

// created is when the CronJobs of these tests are created: 03:04:05 UTC on a Friday.
var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newCronJob returns an hourly CronJob.
func newCronJob(change ...func(*batchv1.CronJob)) *batchv1.CronJob {
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tick", UID: "uid-tick", CreationTimestamp: metav1.NewTime(created)},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 * * * *", TimeZone: ptr.To("Etc/UTC"), ConcurrencyPolicy: batchv1.AllowConcurrent,
			SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "tick"}, Annotations: map[string]string{"note": "a"}}},
		},
	}
	for _, f := range change {
		f(cron)
	}
	return cron
}

// newChild returns the Job of a scheduled time.
func newChild(t *testing.T, cron *batchv1.CronJob, scheduled time.Time, change ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	job, err := newJob(cron, scheduled)
	if err != nil {
		t.Fatal(err)
	}
	job.UID = types.UID("uid-" + job.Name)
	start := metav1.NewTime(scheduled)
	job.Status.StartTime = &start
	for _, f := range change {
		f(job)
	}
	return job
}

// ended gives a Job a condition, and a completion time if it has succeeded.
func ended(with batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: with, Status: corev1.ConditionTrue})
		if with == batchv1.JobComplete {
			end := metav1.NewTime(job.Status.StartTime.Add(time.Minute))
			job.Status.CompletionTime = &end
		}
	}
}

func held(job *batchv1.Job) { job.Annotations[ownership.HoldAnnotation] = "" }

func policy(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(cron *batchv1.CronJob) { cron.Spec.ConcurrencyPolicy = p }
}

func deadline(seconds int64) func(*batchv1.CronJob) {
	return func(cron *batchv1.CronJob) { cron.Spec.StartingDeadlineSeconds = &seconds }
}

func scheduled(text string, zone *string) func(*batchv1.CronJob) {
	return func(cron *batchv1.CronJob) { cron.Spec.Schedule, cron.Spec.TimeZone = text, zone }
}

func suspended(cron *batchv1.CronJob) { cron.Spec.Suspend = ptr.To(true) }

// last sets the last start to an hour of the first day.
func last(hour int) func(*batchv1.CronJob) {
	return func(cron *batchv1.CronJob) { cron.Status.LastScheduleTime = ptr.To(metav1.NewTime(hourOf(hour))) }
}

func hourOf(hour int) time.Time { return time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC) }

func TestDecide(t *testing.T) {
	const tooMany = "Warning TooManyMissedTimes too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
	for _, tt := range []struct {
		name   string
		change []func(*batchv1.CronJob)
		// running are the hours whose Jobs are active; others are more Jobs.
		running []int
		others  []*batchv1.Job
		now     time.Time
		start   string
		replace string
		wait    time.Duration
		notices string
	}{
		{name: "not due", now: hourOf(3).Add(30 * time.Minute), wait: 30 * time.Minute},
		{name: "due", now: hourOf(4), start: "04:00", wait: time.Hour},
		{name: "a little late", now: hourOf(4).Add(20 * time.Second), start: "04:00", wait: time.Hour - 20*time.Second},
		{name: "done", change: []func(*batchv1.CronJob){last(4)}, now: hourOf(4).Add(time.Second), wait: time.Hour - time.Second},
		{name: "several missed: only the last starts", now: hourOf(9).Add(time.Minute), start: "09:00", wait: 59 * time.Minute},
		{name: "many missed", now: hourOf(4).Add(100 * time.Hour), start: "08:00", wait: time.Hour, notices: tooMany},
		{name: "just not many missed", now: hourOf(4).Add(99 * time.Hour), start: "07:00", wait: time.Hour},
		{name: "many missed, few within the deadline", change: []func(*batchv1.CronJob){deadline(7200)}, now: hourOf(4).Add(200 * time.Hour), start: "12:00", wait: time.Hour},
		{name: "within the deadline", change: []func(*batchv1.CronJob){deadline(60)}, now: hourOf(4).Add(time.Minute), start: "04:00", wait: 59 * time.Minute},
		{name: "past the deadline", change: []func(*batchv1.CronJob){deadline(60)}, now: hourOf(4).Add(61 * time.Second), wait: time.Hour - 61*time.Second,
			notices: "Warning MissSchedule Missed scheduled time to start a job: Fri, 02 Jan 2026 04:00:00 +0000"},
		{name: "clock set back behind the last start", change: []func(*batchv1.CronJob){last(9)}, now: hourOf(8), wait: 2 * time.Hour},
		{name: "suspended", change: []func(*batchv1.CronJob){suspended}, now: hourOf(5)},
		{name: "deleted", change: []func(*batchv1.CronJob){func(c *batchv1.CronJob) { c.DeletionTimestamp = &metav1.Time{Time: created} }}, now: hourOf(5)},

		{name: "allow", change: []func(*batchv1.CronJob){last(4)}, running: []int{4}, now: hourOf(5), start: "05:00", wait: time.Hour},
		{name: "forbid", change: []func(*batchv1.CronJob){last(4), policy(batchv1.ForbidConcurrent)}, running: []int{4}, now: hourOf(5), wait: time.Hour,
			notices: "Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid"},
		{name: "forbid, none runs", change: []func(*batchv1.CronJob){last(4), policy(batchv1.ForbidConcurrent)}, now: hourOf(5), start: "05:00", wait: time.Hour},
		{name: "replace", change: []func(*batchv1.CronJob){last(4), policy(batchv1.ReplaceConcurrent)}, running: []int{3, 4}, now: hourOf(5), start: "05:00",
			replace: "tick-29455380 tick-29455440", wait: time.Hour},
		{name: "replace, but on hold", change: []func(*batchv1.CronJob){last(4), policy(batchv1.ReplaceConcurrent), func(c *batchv1.CronJob) {
			c.Spec.JobTemplate.Annotations[ownership.HoldAnnotation] = ""
		}}, running: []int{4}, now: hourOf(5), wait: time.Hour},
		{name: "a Job of another client does not count", change: []func(*batchv1.CronJob){last(4), policy(batchv1.ForbidConcurrent)},
			others: []*batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Name: "manual", UID: "uid-manual"}}}, now: hourOf(5), start: "05:00", wait: time.Hour},
		{name: "a Job has the name", others: []*batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Name: "tick-29455440"}}}, now: hourOf(4), wait: time.Hour},

		{name: "unknown zone", change: []func(*batchv1.CronJob){scheduled("0 * * * *", ptr.To("Mars/Olympus"))}, now: hourOf(5),
			notices: "Warning UnknownTimeZone invalid timeZone: \"Mars/Olympus\": unknown time zone Mars/Olympus"},
		{name: "no schedule", change: []func(*batchv1.CronJob){scheduled("0 * *", nil)}, now: hourOf(5),
			notices: "Warning UnparseableSchedule unparseable schedule: \"0 * *\" : expected exactly 5 fields, found 3: [0 * *]"},
		{name: "never", change: []func(*batchv1.CronJob){scheduled("0 0 31 2 *", nil)}, now: hourOf(5),
			notices: "Warning InvalidSchedule invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second"},
		{name: "zone in the schedule", change: []func(*batchv1.CronJob){scheduled("TZ=Asia/Tokyo 0 13 * * *", nil)}, now: hourOf(4), start: "04:00", wait: 24 * time.Hour,
			notices: "Warning UnsupportedSchedule CRON_TZ or TZ used in schedule \"TZ=Asia/Tokyo 0 13 * * *\" is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"},
		{name: "every", change: []func(*batchv1.CronJob){scheduled("@every 90m", nil)}, now: created.Add(4 * time.Hour), start: "06:04", wait: 30 * time.Minute},
		{name: "every, with a deadline", change: []func(*batchv1.CronJob){scheduled("@every 90m", nil), deadline(7200)}, now: created.Add(4 * time.Hour), start: "06:04", wait: 30 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cron := newCronJob(tt.change...)
			children := tt.others
			for _, hour := range tt.running {
				job := newChild(t, cron, hourOf(hour))
				cron.Status.Active = append(cron.Status.Active, reference(job))
				children = append(children, job)
			}
			d := decide(cron, children, tt.now)
			start := ""
			if !d.start.IsZero() {
				start = d.start.UTC().Format("15:04")
			}
			if start != tt.start || d.wait != tt.wait {
				t.Errorf("start %q, want %q; wait %v, want %v", start, tt.start, d.wait, tt.wait)
			}
			if diff := cmp.Diff(tt.replace, names(d.replace)); diff != "" {
				t.Error("replace", diff)
			}
			if diff := cmp.Diff(tt.notices, texts(d.notices)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func names(of []*batchv1.Job) string {
	var out []string
	for _, job := range of {
		out = append(out, job.Name)
	}
	return strings.Join(out, " ")
}

func texts(of []notices.Notice) string {
	var out []string
	for _, n := range of {
		out = append(out, n.Type+" "+n.Reason+" "+n.Message)
	}
	return strings.Join(out, "\n")
}

func TestNewJob(t *testing.T) {
	cron := newCronJob(scheduled("0 8 * * *", ptr.To("Europe/Berlin")))
	job := newChild(t, cron, time.Date(2026, 7, 1, 6, 0, 0, 0, time.UTC))
	want := metav1.ObjectMeta{
		Namespace: "ns", Name: "tick-29714760", UID: "uid-tick-29714760",
		Labels:      map[string]string{"app": "tick"},
		Annotations: map[string]string{"note": "a", "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-07-01T08:00:00+02:00"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "CronJob", Name: "tick", UID: "uid-tick", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}},
	}
	if diff := cmp.Diff(want, job.ObjectMeta); diff != "" {
		t.Error(diff)
	}
	if at, own := scheduledTime(cron, job); !own || !at.Equal(time.Date(2026, 7, 1, 6, 0, 0, 0, time.UTC)) {
		t.Errorf("recognized as the Job of %v: %v", at, own)
	}
	job.Name = "manual"
	if _, own := scheduledTime(cron, job); own {
		t.Error("a Job of another name was recognized")
	}
}
