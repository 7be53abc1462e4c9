// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/jobs"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Name is the identity of the controller of Jobs.
const Name = "job-controller"

const (
	// workers limits the Jobs that are reconciled at a time.
	workers = 5
	// batchPeriod delays requests for changes of pods, so that one Reconcile, with one status
	// update, handles several of them.
	batchPeriod = 200 * time.Millisecond
)

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

// Add registers the controller. It watches Jobs, pods that they own, and orphaned pods that
// they may adopt.
func Add(env control.Env) error {
	ctx := context.Background()
	seenPods, err := owned.Index(ctx, env.Manager.GetCache(), &corev1.Pod{})
	if err != nil {
		return err
	}
	seenJobs, err := owned.Index(ctx, env.Manager.GetCache(), &batchv1.Job{})
	if err != nil {
		return err
	}
	r := newReconciler(env, seenJobs, seenPods)
	ofPods := handler.EnqueueRequestForOwner(env.Manager.GetScheme(), env.Manager.GetRESTMapper(), &batchv1.Job{}, handler.OnlyControllerOwner())
	err = ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&batchv1.Job{}).
		Watches(&corev1.Pod{}, batched{ofPods}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters), builder.WithPredicates(owned.AdoptableOrphans())).
		Complete(r)
	if err != nil {
		return err
	}
	return addReleaser(env)
}

type reconciler struct {
	client client.Client
	live   client.Reader
	pods   pods.Control
	events record.EventRecorder
	clock  clock.PassiveClock
	// written and jobs record the pods and the Jobs that this process wrote: a Reconcile
	// must see the counts of a Job together with the released finalizers of its pods.
	written *owned.Ledger[*corev1.Pod]
	jobs    *owned.Ledger[*batchv1.Job]

	mu       sync.Mutex
	backoffs map[types.NamespacedName]jobBackoff
}

// jobBackoff is the backoff of the Job with this UID. A new Job of the same name starts without
// backoff.
type jobBackoff struct {
	uid types.UID
	backoff
}

func newReconciler(env control.Env, seenJobs, seenPods func() string) *reconciler {
	return &reconciler{
		client: env.Client, live: env.Live, events: env.Events, clock: env.Clock,
		pods:     pods.Control{Client: env.Client, Events: env.Events},
		written:  owned.NewLedger[*corev1.Pod](seenPods),
		jobs:     owned.NewLedger[*batchv1.Job](seenJobs),
		backoffs: map[types.NamespacedName]jobBackoff{},
	}
}

// Reconcile takes the next step for one Job.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	job, err := r.read(ctx, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.jobs.Forget(req.NamespacedName)
	}
	if err != nil || hasOtherManager(job) || jobs.Finished(job) != nil {
		r.written.Forget(req.NamespacedName)
		r.forgetBackoff(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if ownership.IsHeld(job) {
		return ctrl.Result{}, nil
	}
	if mode := ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion); mode != batchv1.NonIndexedCompletion && mode != batchv1.IndexedCompletion {
		r.events.Event(job, corev1.EventTypeWarning, "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
		return ctrl.Result{}, nil
	}
	claimed, err := r.podsOf(ctx, job)
	if err != nil {
		return ctrl.Result{}, err
	}
	o := observe(job, claimed, r.backoffOf(job), r.clock.Now())
	p := o.plan()
	done, failure := r.act(ctx, job, p)
	if err := r.writeAccount(ctx, o, o.account(p, done)); err != nil {
		return ctrl.Result{}, owned.IgnoreStale(err)
	}
	if failure != nil {
		return ctrl.Result{}, owned.IgnoreStale(failure)
	}
	return ctrl.Result{RequeueAfter: p.wait}, nil
}

// read returns the Job from the cache, or as this process wrote it since.
func (r *reconciler) read(ctx context.Context, key client.ObjectKey) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	if err := r.client.Get(ctx, key, job); err != nil {
		return nil, err
	}
	return r.jobs.Newest(job), nil
}

// hasOtherManager reports whether another controller manages the Job (KEP-4368).
func hasOtherManager(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName
}

// podsOf returns the Job's pods, after adoption and release.
func (r *reconciler) podsOf(ctx context.Context, job *batchv1.Job) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(err) // Validation refuses such a selector.
	}
	return owned.Children[*corev1.Pod]{
		Kind: kind, Finalizer: batchv1.JobTrackingFinalizer,
		Client: r.client, Live: r.live, Ledger: r.written, List: pods.List,
	}.Find(ctx, job, selector)
}

// act carries out the plan and returns what succeeded.
func (r *reconciler) act(ctx context.Context, job *batchv1.Job, p plan) (outcome, error) {
	var done outcome
	var err error
	switch {
	case len(p.terminate) > 0:
		done.terminated, err = each(p.terminate, func(pod *corev1.Pod) error { return r.delete(ctx, job, pod) })
	case len(p.drop) > 0:
		done.dropped, err = each(p.drop, func(pod *corev1.Pod) error { return r.drop(ctx, job, pod) })
	case len(p.create) > 0:
		done.created, err = r.create(ctx, job, p.create)
	}
	return done, err
}

// each calls do for all pods, and returns those for which it succeeded.
func each(all []*corev1.Pod, do func(*corev1.Pod) error) ([]*corev1.Pod, error) {
	ok := make([]bool, len(all))
	_, err := pods.Parallel(len(all), func(i int) error {
		err := do(all[i])
		ok[i] = err == nil
		return err
	})
	var done []*corev1.Pod
	for i, pod := range all {
		if ok[i] {
			done = append(done, pod)
		}
	}
	return done, err
}

func (r *reconciler) create(ctx context.Context, job *batchv1.Job, slots []slot) (int, error) {
	if ok, err := owned.Confirm(ctx, r.live, job); !ok {
		return 0, err
	}
	created, err := pods.SlowStart(len(slots), func(i int) error {
		pod := newPod(job, slots[i])
		if err := r.pods.Create(ctx, job, pod); err != nil {
			return err
		}
		r.written.Wrote(job, pod)
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = nil
	}
	return created, err
}

// delete deletes a pod, which remains until its finalizer is removed.
func (r *reconciler) delete(ctx context.Context, job *batchv1.Job, pod *corev1.Pod) error {
	if err := r.pods.Delete(ctx, job, pod); err != nil {
		return err
	}
	r.written.Terminating(job, pod, r.clock.Now())
	return nil
}

// drop deletes a pod without counting it. It does nothing if the pod was changed since it was
// selected: the pod may have ended, and then must be counted.
func (r *reconciler) drop(ctx context.Context, job *batchv1.Job, pod *corev1.Pod) error {
	dropped, err := r.release(ctx, job, pod, pod.ResourceVersion)
	if err != nil {
		return err
	}
	return r.delete(ctx, job, dropped)
}

// release removes the finalizer from a pod; with a version, only from that version of the pod.
func (r *reconciler) release(ctx context.Context, job *batchv1.Job, pod *corev1.Pod, version string) (*corev1.Pod, error) {
	if !isTracked(pod) {
		return pod, nil
	}
	released := pod.DeepCopy()
	if err := r.client.Patch(ctx, released, untrack(pod.UID, version)); err != nil {
		return nil, err
	}
	r.written.Wrote(job, released)
	return released, nil
}

// untrack returns the patch that removes the finalizer from the pod with this UID.
func untrack(uid types.UID, version string) client.Patch {
	metadata := map[string]any{"uid": uid, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // Strings can always be encoded.
	}
	return client.RawPatch(types.StrategicMergePatchType, body)
}

// writeAccount writes the account in the order that makes counting crash-safe.
func (r *reconciler) writeAccount(ctx context.Context, o *observed, a *account) error {
	job, err := r.report(ctx, o.job, a.status)
	if err != nil {
		return err
	}
	r.keepBackoff(job, o.backoff)
	released, failure := each(a.release, func(pod *corev1.Pod) error {
		_, err := r.release(ctx, job, pod, "")
		return client.IgnoreNotFound(err)
	})
	for _, pod := range released {
		a.tracked.Delete(pod.UID)
	}
	if _, err := r.report(ctx, job, a.statusAfterRelease(&job.Status, o)); err != nil {
		return err
	}
	return failure
}

// report writes the status if it has changed, and records events.
func (r *reconciler) report(ctx context.Context, job *batchv1.Job, status batchv1.JobStatus) (*batchv1.Job, error) {
	if apiequality.Semantic.DeepEqual(job.Status, status) {
		return job, nil
	}
	updated := job.DeepCopy()
	updated.Status = status
	if err := r.client.Status().Update(ctx, updated); err != nil {
		return nil, err
	}
	r.jobs.Wrote(updated, updated)
	for _, e := range eventsOf(job, updated) {
		r.events.Event(updated, e.kind, e.reason, e.message)
	}
	return updated, nil
}

type jobEvent struct{ kind, reason, message string }

// eventsOf returns the events for a changed status.
func eventsOf(before, after *batchv1.Job) []jobEvent {
	var out []jobEvent
	was, is := jobs.Condition(&before.Status, batchv1.JobSuspended), jobs.Condition(&after.Status, batchv1.JobSuspended)
	switch {
	case is == nil || was != nil && was.Status == is.Status:
	case is.Status == corev1.ConditionTrue:
		out = append(out, jobEvent{corev1.EventTypeNormal, "Suspended", is.Message})
	default:
		out = append(out, jobEvent{corev1.EventTypeNormal, "Resumed", is.Message})
	}
	end := jobs.Finished(after)
	if end == nil || jobs.Finished(before) != nil {
		return out
	}
	if end.Type == batchv1.JobFailed {
		return append(out, jobEvent{corev1.EventTypeWarning, end.Reason, end.Message})
	}
	if want := after.Spec.Completions; want != nil && after.Status.Succeeded > *want {
		out = append(out, jobEvent{corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached"})
	}
	return append(out, jobEvent{corev1.EventTypeNormal, "Completed", "Job completed"})
}

func (r *reconciler) backoffOf(job *batchv1.Job) backoff {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept := r.backoffs[client.ObjectKeyFromObject(job)]; kept.uid == job.UID {
		return kept.backoff
	}
	return backoff{}
}

func (r *reconciler) keepBackoff(job *batchv1.Job, b backoff) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backoffs[client.ObjectKeyFromObject(job)] = jobBackoff{job.UID, b}
}

func (r *reconciler) forgetBackoff(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.backoffs, key)
}

// adopters returns a request for each Job that selects an orphaned pod.
func (r *reconciler) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	found := &batchv1.JobList{}
	if err := r.client.List(ctx, found, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the Jobs that may adopt a pod", "kind", kind.Kind, "pod", klog.KObj(pod))
		return nil
	}
	return owned.Selecting(pod, found.Items, func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector })
}

// batched delays the requests of a handler, so that several cause one Reconcile.
type batched struct{ handler.EventHandler }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (b batched) Create(ctx context.Context, e event.CreateEvent, q queue) {
	b.EventHandler.Create(ctx, e, delayedQueue{q})
}

func (b batched) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	b.EventHandler.Update(ctx, e, delayedQueue{q})
}

func (b batched) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	b.EventHandler.Delete(ctx, e, delayedQueue{q})
}

type delayedQueue struct{ queue }

func (q delayedQueue) Add(req reconcile.Request) { q.AddAfter(req, batchPeriod) }
