// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
	"github.com/kindred-project/kindred/internal/controllers/framework/notices"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Name is the controller's identity, and the source of its events.
const Name = "cronjob-controller"

// workers limits the CronJobs that are reconciled at a time. Many are due in the same second, and a
// worker mostly waits for its two writes to reach the disk.
const workers = 128

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Add registers the controller. It watches CronJobs, the Jobs that they own, and the clock.
func Add(env control.Env) error {
	ctx, cache := context.Background(), env.Manager.GetCache()
	jobsSeen, err := owned.Index(ctx, cache, &batchv1.Job{})
	if err != nil {
		return err
	}
	cronsSeen, err := owned.Seen(ctx, cache, &batchv1.CronJob{})
	if err != nil {
		return err
	}
	watch := newClockWatch(env)
	if err := env.Every(jumpInterval, watch.check); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&batchv1.CronJob{}).
		Owns(&batchv1.Job{}).
		WatchesRawSource(source.Channel(watch.jumps, &handler.EnqueueRequestForObject{})).
		Complete(newReconciler(env, jobsSeen, cronsSeen))
}

type reconciler struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock
	// jobs and crons record the Jobs and the CronJobs that this process wrote.
	jobs  *owned.Ledger[*batchv1.Job]
	crons *owned.Ledger[*batchv1.CronJob]
	// notices records events about the state of a CronJob.
	notices *notices.Board
}

func newReconciler(env control.Env, jobsSeen, cronsSeen func() string) *reconciler {
	return &reconciler{
		client: env.Client, live: env.Live, events: env.Events, clock: env.Clock,
		jobs:    owned.NewLedger[*batchv1.Job](jobsSeen),
		crons:   owned.NewLedger[*batchv1.CronJob](cronsSeen),
		notices: notices.NewBoard(env.Events, env.Clock),
	}
}

// Reconcile takes the next step for one CronJob.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &batchv1.CronJob{}
	if ok, err := owned.Fetch(ctx, r.client, req, cached, r.jobs.Forget, r.crons.Forget, r.notices.Forget); !ok {
		return ctrl.Result{}, err
	}
	wait, err := r.step(ctx, r.crons.Newest(cached))
	if err = owned.IgnoreStale(err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// step decides from one view of the CronJob, and acts. It returns the time until the next scheduled
// time, or 0 for never.
func (r *reconciler) step(ctx context.Context, cron *batchv1.CronJob) (time.Duration, error) {
	children, err := r.jobsOf(ctx, cron)
	if err != nil {
		return 0, err
	}
	status, seen := observe(cron, children)
	if cron, err = r.report(ctx, cron, status); err != nil {
		return 0, err
	}
	r.notices.Record(cron, seen.changes)
	d := decide(cron, children, r.clock.Now())
	r.notices.Post(cron, append(seen.unexpected, d.notices...))
	err = r.start(ctx, cron, d)
	if failure := r.trim(ctx, cron, surplus(&cron.Spec, children)); err == nil {
		err = failure
	}
	return d.wait, err
}

// jobsOf returns the Jobs that the CronJob controls. A Job that is listed as active but not cached
// may be too new for the cache, so the API is asked.
func (r *reconciler) jobsOf(ctx context.Context, cron *batchv1.CronJob) ([]*batchv1.Job, error) {
	children, err := r.jobs.Read(cron, func() ([]*batchv1.Job, error) {
		return jobs.List(ctx, r.client, owned.By(cron.Namespace, string(cron.UID))...)
	})
	if err != nil {
		return nil, err
	}
	for _, ref := range cron.Status.Active {
		if byUID(children, ref.UID) != nil {
			continue
		}
		job := &batchv1.Job{}
		err := r.live.Get(ctx, client.ObjectKey{Namespace: cron.Namespace, Name: ref.Name}, job)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, err
		case err == nil && job.UID == ref.UID:
			children = append(children, job)
		}
	}
	return children, nil
}

// report writes the status if it has changed, and returns the CronJob as written.
func (r *reconciler) report(ctx context.Context, cron *batchv1.CronJob, status batchv1.CronJobStatus) (*batchv1.CronJob, error) {
	if apiequality.Semantic.DeepEqual(cron.Status, status) {
		return cron, nil
	}
	updated := cron.DeepCopy()
	updated.Status = status
	if err := r.client.Status().Update(ctx, updated); err != nil {
		return nil, err
	}
	r.crons.Wrote(updated, updated)
	return updated, nil
}
