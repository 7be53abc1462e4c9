// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// TTLName is the identity of the controller that deletes finished Jobs.
const TTLName = "ttl-after-finished-controller"

// AddTTL registers the controller that deletes Jobs ttlSecondsAfterFinished seconds
// after their end.
func AddTTL(env control.Env) error {
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(TTLName).
		WithOptions(env.Options(workers)).
		For(&batchv1.Job{}).
		Complete(&expirer{client: env.Client, live: env.Live, clock: env.Clock})
}

type expirer struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
}

// Reconcile deletes one expired Job with its dependents, or requeues it for its expiry.
func (x *expirer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	job := &batchv1.Job{}
	if err := x.client.Get(ctx, req.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if left, expires := timeToLive(job, x.clock.Now()); !expires || left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	// The TTL may have been extended since the cached version.
	fresh := &batchv1.Job{}
	if err := x.live.Get(ctx, req.NamespacedName, fresh); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if left, expires := timeToLive(fresh, x.clock.Now()); !expires || left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	// The version protects an extension or a hold that is written at this moment. Its event requeues the Job.
	err := x.client.Delete(ctx, fresh, client.PropagationPolicy(metav1.DeletePropagationForeground),
		client.Preconditions{UID: &fresh.UID, ResourceVersion: &fresh.ResourceVersion})
	return ctrl.Result{}, owned.IgnoreStale(err)
}

// timeToLive returns how long a finished Job is kept, and whether it expires. A Job on hold does
// not expire. If the clock was set back, the Job is kept for longer.
func timeToLive(job *batchv1.Job, now time.Time) (left time.Duration, expires bool) {
	end, ttl := jobs.Finished(job), job.Spec.TTLSecondsAfterFinished
	if end == nil || ttl == nil || job.DeletionTimestamp != nil || ownership.IsHeld(job) || end.LastTransitionTime.IsZero() {
		return 0, false
	}
	return max(0, end.LastTransitionTime.Add(time.Duration(*ttl)*time.Second).Sub(now)), true
}
