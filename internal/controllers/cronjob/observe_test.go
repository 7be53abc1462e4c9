// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestObserve(t *testing.T) {
	cron := newCronJob(last(5))
	runs := newChild(t, cron, hourOf(4))
	done := newChild(t, cron, hourOf(5), ended(batchv1.JobComplete))
	failed := newChild(t, cron, hourOf(3), ended(batchv1.JobFailed))
	gone := newChild(t, cron, hourOf(2))
	forgotten := newChild(t, cron, hourOf(6))
	earlier := newChild(t, cron, hourOf(1), ended(batchv1.JobComplete))
	manual := newChild(t, cron, hourOf(4), func(job *batchv1.Job) { job.Name, job.UID = "manual", "uid-manual" })
	dying := newChild(t, cron, hourOf(0), func(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: created} })
	for _, job := range []*batchv1.Job{runs, done, failed, gone} {
		cron.Status.Active = append(cron.Status.Active, reference(job))
	}
	status, seen := observe(cron, []*batchv1.Job{forgotten, runs, done, failed, earlier, manual, dying})

	var listed []*batchv1.Job
	for _, ref := range status.Active {
		listed = append(listed, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}})
	}
	if diff := cmp.Diff(names([]*batchv1.Job{runs, forgotten}), names(listed)); diff != "" {
		t.Error("active", diff)
	}
	if !status.LastScheduleTime.Equal(ptr.To(metav1.NewTime(hourOf(6)))) || !status.LastSuccessfulTime.Equal(done.Status.CompletionTime) {
		t.Errorf("last start %v, last success %v", status.LastScheduleTime, status.LastSuccessfulTime)
	}
	want := "Normal SawCompletedJob Saw completed job: " + done.Name + ", condition: Complete\n" +
		"Normal SawCompletedJob Saw completed job: " + failed.Name + ", condition: Failed\n" +
		"Normal MissingJob Active job went missing: " + gone.Name
	if diff := cmp.Diff(want, texts(seen.changes)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("Warning UnexpectedJob Saw a job that the controller did not create or forgot: manual", texts(seen.unexpected)); diff != "" {
		t.Error(diff)
	}
}

func TestSurplus(t *testing.T) {
	cron := newCronJob()
	notStarted := func(job *batchv1.Job) { job.Status.StartTime = nil }
	deleted := func(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: created} }
	children := []*batchv1.Job{
		newChild(t, cron, hourOf(9), ended(batchv1.JobComplete)),
		newChild(t, cron, hourOf(8), ended(batchv1.JobFailed)),
		newChild(t, cron, hourOf(7), ended(batchv1.JobComplete)),
		newChild(t, cron, hourOf(6), ended(batchv1.JobFailed), notStarted),
		newChild(t, cron, hourOf(5), ended(batchv1.JobComplete)),
		newChild(t, cron, hourOf(4), ended(batchv1.JobComplete)),
		newChild(t, cron, hourOf(3), ended(batchv1.JobComplete), held),
		newChild(t, cron, hourOf(2), ended(batchv1.JobComplete), deleted),
		newChild(t, cron, hourOf(1)),
	}
	for _, tt := range []struct {
		name              string
		succeeded, failed *int32
		want              []*batchv1.Job
	}{
		{"the defaults", ptr.To[int32](3), ptr.To[int32](1), []*batchv1.Job{children[5], children[1]}},
		{"none", ptr.To[int32](0), ptr.To[int32](0), []*batchv1.Job{children[5], children[4], children[2], children[0], children[1], children[3]}},
		{"no limits", nil, nil, nil},
		{"more than there are", ptr.To[int32](9), ptr.To[int32](9), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := surplus(&batchv1.CronJobSpec{SuccessfulJobsHistoryLimit: tt.succeeded, FailedJobsHistoryLimit: tt.failed}, children)
			if diff := cmp.Diff(names(tt.want), names(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestIsJump(t *testing.T) {
	for _, tt := range []struct {
		wall, passed time.Duration
		want         bool
	}{
		{5 * time.Second, 5 * time.Second, false},
		{5*time.Second + 100*time.Millisecond, 5 * time.Second, false},
		{time.Hour, 5 * time.Second, true},
		{-time.Hour, 5 * time.Second, true},
		{8 * time.Hour, 8 * time.Hour, false},
	} {
		if got := isJump(tt.wall, tt.passed); got != tt.want {
			t.Errorf("wall clock %v, passed %v: %v", tt.wall, tt.passed, got)
		}
	}
}
