// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// start deletes the Jobs that a decision replaces, creates its Job, and writes the status.
func (r *reconciler) start(ctx context.Context, cron *batchv1.CronJob, d decision) error {
	if d.start.IsZero() {
		return nil
	}
	for _, job := range d.replace {
		if err := r.remove(ctx, cron, job); err != nil {
			return err
		}
	}
	status := *cron.Status.DeepCopy()
	status.Active = slices.DeleteFunc(status.Active, func(ref corev1.ObjectReference) bool { return byUID(d.replace, ref.UID) != nil })
	job, failure := r.create(ctx, cron, d)
	if job != nil {
		status.Active = append(status.Active, reference(job))
		status.LastScheduleTime = &metav1.Time{Time: d.start}
	}
	if _, err := r.report(ctx, cron, status); failure == nil {
		failure = err
	}
	return failure
}

// create creates the Job of a decision and returns it, or nil if another client has taken its name.
func (r *reconciler) create(ctx context.Context, cron *batchv1.CronJob, d decision) (*batchv1.Job, error) {
	job, err := newJob(cron, d.start)
	if err != nil {
		return nil, err
	}
	if ok, err := owned.Confirm(ctx, r.live, cron); !ok {
		return nil, err
	}
	err = r.client.Create(ctx, job)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil // creation always fails in a terminating namespace
	case apierrors.IsAlreadyExists(err):
		return r.existing(ctx, cron, job.Name)
	case err != nil:
		r.events.Eventf(cron, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return nil, err
	}
	r.jobs.Wrote(cron, job)
	r.events.Eventf(cron, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	return job, nil
}

// existing returns the Job of the given name if the CronJob controls it, or nil. The cache did not
// have it.
func (r *reconciler) existing(ctx context.Context, cron *batchv1.CronJob, name string) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: cron.Namespace, Name: name}, job); err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(job, cron) {
		return nil, nil
	}
	return job, nil
}

// trim deletes Jobs. It tries all of them, and returns the first error.
func (r *reconciler) trim(ctx context.Context, cron *batchv1.CronJob, surplus []*batchv1.Job) (first error) {
	for _, job := range surplus {
		if err := r.remove(ctx, cron, job); first == nil {
			first = err
		}
	}
	return first
}

// remove deletes a Job, and its pods in the background.
func (r *reconciler) remove(ctx context.Context, cron *batchv1.CronJob, job *batchv1.Job) error {
	err := r.client.Delete(ctx, job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // gone, or another Job has its name
	case err != nil:
		r.events.Eventf(cron, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return err
	default:
		r.events.Eventf(cron, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", job.Name)
	}
	r.jobs.Deleted(cron, job)
	return nil
}
