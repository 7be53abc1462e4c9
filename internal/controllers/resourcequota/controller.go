// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota keeps the status of ResourceQuotas up to date. Admission adds the usage
// of a request that it admits; the controller counts existing objects, and so removes the
// usage of objects that were never stored, have ended or were deleted.
//
// It watches a kind only if a quota counts it. It reads pods, Services and claims for volumes
// and devices from the shared cache, and only the metadata of all other kinds.
package resourcequota

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/quota"
)

// Name is the controller's identity.
const Name = "resourcequota-controller"

const (
	workers = 5
	// resync is the interval at which each quota is counted without an event, as upstream does: a pod
	// stops counting at the end of its grace period without an event.
	resync = 5 * time.Minute
	// unservedDelay is the interval at which discovery is checked for a kind that is not served. It is for
	// aggregated APIs; those of CRDs have events.
	unservedDelay = 30 * time.Second
	// watchStartTimeout is the time that a new watch may take to list the objects, before the
	// quota is counted without that kind. Admission refuses all requests while usage is
	// missing.
	watchStartTimeout = 5 * time.Second
	// shortDelay is the delay of a retry for a new watch, for a kind whose CRD has just
	// changed, or after a conflict.
	shortDelay = 100 * time.Millisecond
)

// Add registers the controller. It watches quotas for changed limits, objects of the counted kinds,
// and CRDs of such kinds.
func Add(env control.Env) error {
	r := newReconciler(env, env.Manager.GetCache())
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.ResourceQuota{}, builder.WithPredicates(limits())).
		WatchesMetadata(crd, r.crdHandler()).
		WatchesRawSource(source.Func(r.wakeups.start)).
		Complete(r)
}

// limits passes new quotas and changes of their limits, but not changes of their status, which
// admission writes with each request.
func limits() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, ok := e.ObjectNew.(*corev1.ResourceQuota)
			old, oldOK := e.ObjectOld.(*corev1.ResourceQuota)
			return ok && oldOK && !library.Equals(now.Spec.Hard, old.Spec.Hard)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

type reconciler struct {
	client  client.Client
	reader  reader
	clock   clock.PassiveClock
	watches *watches
	wakeups *wakeups
	charges *charges
}

func newReconciler(env control.Env, cache informers) *reconciler {
	w := &wakeups{client: env.Client, clock: env.Clock, known: quota.Evaluators(nil, env.Clock, reader{env.Live})}
	return &reconciler{
		client: env.Client, reader: reader{env.Live}, clock: env.Clock, wakeups: w, charges: newCharges(env.Clock),
		watches: &watches{cache: cache, served: env.Discovery, clock: env.Clock, wake: w, open: map[schema.GroupResource]*watch{}},
	}
}

// Reconcile counts the usage of one quota, and writes it if it has changed. Resources that cannot be
// counted keep their usage.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	q := &corev1.ResourceQuota{}
	if err := r.client.Get(ctx, req.NamespacedName, q); err != nil {
		r.charges.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	evaluators, again, unwatched := r.evaluators(ctx, q)
	if again == 0 {
		return ctrl.Result{RequeueAfter: shortDelay}, nil
	}
	freed := r.wakeups.takeFreed(req.NamespacedName)
	used, uncounted := library.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, generic.NewRegistry(evaluators), q.Spec.ScopeSelector)
	if wait := r.charges.remainingWait(q, used); wait > 0 && !freed {
		return ctrl.Result{RequeueAfter: min(again, wait)}, errors.Join(unwatched, uncounted)
	}
	err := r.report(ctx, q, used)
	if apierrors.IsConflict(err) {
		again = shortDelay // a conflict: admission has charged the quota
	}
	if err := errors.Join(unwatched, uncounted, owned.IgnoreStale(err)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// evaluators returns the evaluators of the watched kinds that the quota counts, and when to requeue
// the quota.
func (r *reconciler) evaluators(ctx context.Context, q *corev1.ResourceQuota) (ready []library.Evaluator, again time.Duration, err error) {
	again = resync
	for _, e := range counting(q, quota.Evaluators(r.lister(ctx), r.clock, r.reader), r.lister(ctx)) {
		w, watchErr := r.watches.watch(ctx, e.GroupResource())
		if r.watches.isUnsettled(e.GroupResource()) {
			again = min(again, countDelay)
		}
		switch {
		case errors.Is(watchErr, errUnserved):
			again = min(again, r.wakeups.unservedRetry(e.GroupResource()))
		case watchErr != nil:
			err = errors.Join(err, watchErr)
		case w.synced():
			ready = append(ready, e)
		case r.clock.Since(w.started) < watchStartTimeout:
			again = 0
		default: // The watch may take long to start: count the other kinds.
			again = min(again, watchStartTimeout)
		}
	}
	return ready, again, err
}

// counting returns the evaluators of all kinds that a quota counts: the known ones, and those that
// count objects.
func counting(q *corev1.ResourceQuota, known []library.Evaluator, list quota.Lister) []library.Evaluator {
	var out []library.Evaluator
	found := map[schema.GroupResource]bool{}
	add := func(e library.Evaluator) {
		if !found[e.GroupResource()] {
			found[e.GroupResource()] = true
			out = append(out, e)
		}
	}
	names := library.ResourceNames(q.Spec.Hard)
	for _, e := range known {
		if len(e.MatchingResources(names)) > 0 {
			add(e)
		}
	}
	for _, name := range names {
		if resource, counted := quota.Counted(name); counted {
			add(quota.Count(resource, list))
		}
	}
	return out
}

// lister lists objects of the watched kinds.
func (r *reconciler) lister(ctx context.Context) quota.Lister {
	return func(resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
		return r.watches.list(ctx, r.client, resource, namespace)
	}
}

// report writes the limits and their usage. A limited resource that was not counted keeps its
// usage.
func (r *reconciler) report(ctx context.Context, q *corev1.ResourceQuota, counted corev1.ResourceList) error {
	used := library.Add(corev1.ResourceList{}, q.Status.Used)
	for name, quantity := range counted {
		used[name] = quantity
	}
	used = library.Mask(used, library.ResourceNames(q.Spec.Hard))
	known := q.Status.Hard != nil && q.Status.Used != nil
	if known && equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) && library.Equals(used, q.Status.Used) {
		return nil
	}
	q = q.DeepCopy()
	q.Status = corev1.ResourceQuotaStatus{Hard: library.Add(corev1.ResourceList{}, q.Spec.Hard), Used: used}
	return r.client.Status().Update(ctx, q)
}
