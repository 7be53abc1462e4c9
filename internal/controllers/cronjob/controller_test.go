// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
)

var (
	ctx = context.Background()
	key = client.ObjectKey{Namespace: "ns", Name: "tick"}
)

// bench is a reconciler in a world of its own, with one CronJob.
type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, change ...func(*batchv1.CronJob)) *bench {
	w := controltest.New(t, newCronJob(change...))
	w.Clock.SetTime(created)
	return &bench{w, newReconciler(w.Env(), w.Seen, w.Seen), t}
}

func (b *bench) reconcile() ctrl.Result {
	b.t.Helper()
	b.Sync()
	result, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(err)
	return result
}

func (b *bench) cron() *batchv1.CronJob {
	b.t.Helper()
	cron := &batchv1.CronJob{}
	b.Must(b.API.Get(ctx, key, cron))
	return cron
}

// all returns the Jobs by name.
func (b *bench) all() []*batchv1.Job {
	b.t.Helper()
	found, err := jobs.List(ctx, b.API)
	b.Must(err)
	slices.SortFunc(found, func(x, y *batchv1.Job) int { return strings.Compare(x.Name, y.Name) })
	return found
}

// end finishes a Job.
func (b *bench) end(job *batchv1.Job, with batchv1.JobConditionType) {
	b.t.Helper()
	start := metav1.NewTime(b.Clock.Now())
	job.Status.StartTime = &start
	ended(with)(job)
	b.Must(b.API.Status().Update(ctx, job))
}

func (b *bench) activeNames() string {
	var out []string
	for _, ref := range b.cron().Status.Active {
		out = append(out, ref.Name)
	}
	return strings.Join(out, " ")
}

// TestAWeekInASecond runs an hourly CronJob for a week. The clock moves by the delays that the
// controller returns.
func TestAWeekInASecond(t *testing.T) {
	b := newBench(t)
	var started []string
	for len(started) < 7*24 {
		b.Clock.Step(b.reconcile().RequeueAfter)
		b.reconcile()
		for _, job := range b.all() {
			if jobs.Finished(job) == nil {
				started = append(started, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
				b.end(job, batchv1.JobComplete)
			}
		}
		if n := len(b.all()); n > 4 {
			t.Fatalf("%d Jobs are left", n)
		}
	}
	b.reconcile()
	var want []string
	for at := hourOf(4); len(want) < 7*24; at = at.Add(time.Hour) {
		want = append(want, at.Format(time.RFC3339))
	}
	if diff := cmp.Diff(want, started); diff != "" {
		t.Error(diff)
	}
	status := b.cron().Status
	if len(b.all()) != 3 || len(status.Active) != 0 || status.LastScheduleTime.UTC().Format(time.RFC3339) != want[len(want)-1] || status.LastSuccessfulTime == nil {
		t.Errorf("%d Jobs, status %+v", len(b.all()), status)
	}
}

// A daily Job follows the clocks of its zone.
func TestDaylightSaving(t *testing.T) {
	b := newBench(t, scheduled("0 8 * * *", ptr.To("Europe/Berlin")), func(c *batchv1.CronJob) {
		c.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC))
	})
	b.Clock.SetTime(time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC))
	for range 3 {
		b.Clock.Step(b.reconcile().RequeueAfter)
		b.reconcile()
	}
	var got []string
	for _, job := range b.all() {
		got = append(got, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	}
	if diff := cmp.Diff([]string{"2026-03-28T08:00:00+01:00", "2026-03-29T08:00:00+02:00", "2026-03-30T08:00:00+02:00"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		policy       batchv1.ConcurrencyPolicy
		jobs, active string
		events       []string
	}{
		{batchv1.AllowConcurrent, "tick-29455440 tick-29455500", "tick-29455440 tick-29455500", []string{"Normal SuccessfulCreate Created job tick-29455500"}},
		{batchv1.ForbidConcurrent, "tick-29455440", "tick-29455440", []string{"Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid"}},
		{batchv1.ReplaceConcurrent, "tick-29455500", "tick-29455500", []string{"Normal SuccessfulDelete Deleted job tick-29455440", "Normal SuccessfulCreate Created job tick-29455500"}},
	} {
		t.Run(string(tt.policy), func(t *testing.T) {
			b := newBench(t, policy(tt.policy))
			b.Clock.SetTime(hourOf(4))
			b.reconcile()
			b.Events()
			b.Clock.SetTime(hourOf(5))
			for range 3 {
				b.reconcile()
			}
			if diff := cmp.Diff(tt.jobs, names(b.all())); diff != "" {
				t.Error("Jobs", diff)
			}
			if diff := cmp.Diff(tt.active, b.activeNames()); diff != "" {
				t.Error("active", diff)
			}
			if diff := cmp.Diff(tt.events, b.Events()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A start that Forbid has delayed happens when the active Job ends.
func TestForbidCatchesUp(t *testing.T) {
	b := newBench(t, policy(batchv1.ForbidConcurrent))
	b.Clock.SetTime(hourOf(4))
	b.reconcile()
	b.Clock.SetTime(hourOf(5).Add(10 * time.Minute))
	b.reconcile()
	b.end(b.all()[0], batchv1.JobFailed)
	b.reconcile()
	if got := b.activeNames(); got != "tick-29455500" {
		t.Errorf("active: %q", got)
	}
}

// Another client has taken the name; the next time has another one.
func TestNameIsTaken(t *testing.T) {
	b := newBench(t)
	b.Must(b.API.Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tick-29455440"}}))
	b.Clock.SetTime(hourOf(4))
	if wait := b.reconcile().RequeueAfter; wait != time.Hour || b.activeNames() != "" || b.cron().Status.LastScheduleTime != nil {
		t.Errorf("requeued after %v, active %q, last start %v", wait, b.activeNames(), b.cron().Status.LastScheduleTime)
	}
	b.Clock.SetTime(hourOf(5))
	b.reconcile()
	if got := b.activeNames(); got != "tick-29455500" {
		t.Errorf("active: %q", got)
	}
}

func TestFailedCreateIsRetried(t *testing.T) {
	b := newBench(t)
	b.Clock.SetTime(hourOf(4))
	b.Refuse = func(string, client.Object) error { return errors.New("no") }
	b.Sync()
	if _, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("no error, so the request is not retried")
	}
	if diff := cmp.Diff([]string{"Warning FailedCreate Error creating job: no"}, b.Events()); diff != "" {
		t.Error(diff)
	}
	b.Refuse = nil
	b.reconcile()
	if got := b.activeNames(); got != "tick-29455440" {
		t.Errorf("active: %q", got)
	}
}

// The events about a state are recorded once while it lasts, and again for the next time.
func TestStateIsToldOnce(t *testing.T) {
	b := newBench(t, deadline(10))
	var want []string
	for hour := 4; hour < 6; hour++ {
		b.Clock.SetTime(hourOf(hour).Add(time.Minute))
		b.reconcile()
		b.reconcile()
		want = append(want, fmt.Sprintf("Warning MissSchedule Missed scheduled time to start a job: Fri, 02 Jan 2026 0%d:00:00 +0000", hour))
	}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Error(diff)
	}
}

// TestWatches runs the controller under a manager, to test what wakes it.
func TestWatches(t *testing.T) {
	w := controltest.New(t)
	w.Run(t, control.Controller{Name: Name, Add: Add})
	b := &bench{World: w, t: t}
	eventually := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("timed out waiting: %s", what)
			}
		}
	}
	// Its last time has passed before it is created, so it does not wait.
	cron := newCronJob(policy(batchv1.ForbidConcurrent), scheduled("@hourly", nil))
	cron.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
	w.Must(w.API.Create(ctx, cron))
	eventually("a Job is active", func() bool { return b.activeNames() != "" })
	b.end(b.all()[0], batchv1.JobComplete)
	eventually("its end is noticed", func() bool { return b.cron().Status.LastSuccessfulTime != nil && b.activeNames() == "" })
	events := ""
	eventually("the event of its end", func() bool { // which is recorded after the status is written
		events += strings.Join(w.Events(), "\n")
		return strings.Contains(events, corev1.EventTypeNormal+" SawCompletedJob")
	})
}

// TestDeletedOwner: nothing is created for a CronJob that is deleted, but still cached.
func TestDeletedOwner(t *testing.T) {
	b := newBench(t)
	b.Clock.Step(time.Hour)
	b.Sync()
	b.Must(b.API.Delete(ctx, b.cron()))
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	b.Must(client.IgnoreNotFound(err)) // the status
	if n := len(b.all()); n != 0 {
		t.Errorf("%d Jobs", n)
	}
}
