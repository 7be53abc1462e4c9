// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// addReleaser registers a second queue of the controller, whose items are pods. It watches pods
// with the finalizer, and Jobs that end.
func addReleaser(env control.Env) error {
	r := &releaser{client: env.Client, live: env.Live}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name+"-finalizers").
		WithOptions(env.Options(workers)).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(isTrackedObject))).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.podsOf), builder.WithPredicates(endedJobs())).
		Complete(r)
}

// endedJobs passes Jobs that are deleted, or finished and not on hold.
func endedJobs() predicate.Predicate {
	isFinished := func(obj client.Object) bool {
		job, ok := obj.(*batchv1.Job)
		return ok && jobs.Finished(job) != nil && !ownership.IsHeld(job)
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, // Pods have events of their own.
		UpdateFunc: func(e event.UpdateEvent) bool { return isFinished(e.ObjectNew) && !isFinished(e.ObjectOld) },
	}
}

func isTrackedObject(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && isTracked(pod)
}

// releaser removes the finalizer from pods that no Job will count.
type releaser struct {
	client client.Client
	live   client.Reader
}

func (r *releaser) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isTracked(pod) || ownership.IsHeld(pod) {
		return ctrl.Result{}, nil
	}
	if counted, err := r.needsCounting(ctx, pod); counted || err != nil {
		return ctrl.Result{}, err
	}
	// The resource version is a precondition: a pod that a Job has adopted since must be counted.
	return ctrl.Result{}, owned.IgnoreStale(r.client.Patch(ctx, pod.DeepCopy(), untrack(pod.UID, pod.ResourceVersion)))
}

// needsCounting reports whether the pod must still be counted, by a Job that is unfinished, on hold
// or managed by another controller, or by an owner of another kind, which is responsible for the
// finalizer.
func (r *releaser) needsCounting(ctx context.Context, pod *corev1.Pod) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return false, nil
	}
	if ref.Kind != kind.Kind || ref.APIVersion != batchv1.SchemeGroupVersion.String() {
		return true, nil
	}
	job, err := r.jobOf(ctx, pod.Namespace, ref)
	if job == nil || err != nil {
		return false, err
	}
	return hasOtherManager(job) || jobs.Finished(job) == nil || ownership.IsHeld(job), nil
}

// jobOf returns the Job that controls a pod, or nil if it does not exist. It reads a Job that is
// not cached from the API: an undeletion restores Jobs and pods together.
func (r *releaser) jobOf(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*batchv1.Job, error) {
	for _, from := range []client.Reader{r.client, r.live} {
		job := &batchv1.Job{}
		err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, job)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && job.UID == ref.UID {
			return job, nil
		}
	}
	return nil, nil
}

// podsOf returns a request for each pod of a Job that has the finalizer.
func (r *releaser) podsOf(ctx context.Context, job client.Object) []reconcile.Request {
	found, err := pods.List(ctx, r.client, owned.By(job.GetNamespace(), string(job.GetUID()))...)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the pods of a Job that has ended", "job", klog.KObj(job))
		return nil
	}
	var out []reconcile.Request
	for _, pod := range pods.Filter(found, isTracked) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	}
	return out
}
