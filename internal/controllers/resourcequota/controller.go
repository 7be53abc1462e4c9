// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota keeps the status of ResourceQuotas true. Admission adds to
// what is used when it lets a request in; what was let in and never stored, has ended
// or was deleted, this controller finds out, by counting what is there.
//
// It watches a kind from the first quota on that counts it: while there are no quotas,
// there is nothing to do and nothing to watch. Of pods, Services and claims
// for volumes and devices it reads the objects that the whole process shares; of all
// other kinds, the metadata is enough.
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
	// resync is how often each quota is counted anew, whatever happens: a pod whose
	// grace period is over stops counting without an event. It is upstream's.
	resync = 5 * time.Minute
	// unserved is how often a kind that nobody serves is looked for. Those of CRDs
	// announce themselves; this is for aggregated APIs.
	unserved = 30 * time.Second
	// beginning is how long a watch may take to see what is there, before its kind is
	// done without. Admission refuses everything while figures are missing.
	beginning = 5 * time.Second
	// soon is when to look again at what takes but a moment: a watch that begins, a
	// kind whose CRD has just changed, a quota that somebody else wrote.
	soon = 100 * time.Millisecond
)

// Add registers the controller: woken by quotas whose limits change, by objects of the
// kinds they count, and by CRDs that bring such kinds.
func Add(env control.Env) error {
	r := newReconciler(env, env.Manager.GetCache())
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.ResourceQuota{}, builder.WithPredicates(limits())).
		WatchesMetadata(crd, r.announcements()).
		WatchesRawSource(source.Func(r.wakeups.start)).
		Complete(r)
}

// limits passes new quotas and those that limit other amounts: the status is written by
// admission with each request, and needs no look.
func limits() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, ok := e.ObjectNew.(*corev1.ResourceQuota)
			old, was := e.ObjectOld.(*corev1.ResourceQuota)
			return ok && was && !library.Equals(now.Spec.Hard, old.Spec.Hard)
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

// Reconcile counts what one quota counts, and writes it down if it has changed. What
// cannot be counted keeps its figure.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	q := &corev1.ResourceQuota{}
	if err := r.client.Get(ctx, req.NamespacedName, q); err != nil {
		r.charges.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	evaluators, again, unwatched := r.evaluators(ctx, q)
	if again == 0 {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	freed := r.wakeups.takeFreed(req.NamespacedName)
	used, uncounted := library.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, generic.NewRegistry(evaluators), q.Spec.ScopeSelector)
	if wait := r.charges.settle(q, used); wait > 0 && !freed {
		return ctrl.Result{RequeueAfter: min(again, wait)}, errors.Join(unwatched, uncounted)
	}
	err := r.report(ctx, q, used)
	if apierrors.IsConflict(err) {
		again = soon // admission was faster: there is more by now
	}
	if err := errors.Join(unwatched, uncounted, owned.IgnoreStale(err)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// evaluators are those of the kinds that the quota counts and that are watched, and
// when to look again at it: 0 if watches have just begun, so that nothing is counted
// yet.
func (r *reconciler) evaluators(ctx context.Context, q *corev1.ResourceQuota) (ready []library.Evaluator, again time.Duration, err error) {
	again = resync
	for _, e := range counting(q, quota.Evaluators(r.lister(ctx), r.clock, r.reader), r.lister(ctx)) {
		w, watchErr := r.watches.watch(ctx, e.GroupResource())
		if r.watches.unsettled(e.GroupResource()) {
			again = min(again, settling)
		}
		switch {
		case errors.Is(watchErr, errUnserved):
			again = min(again, r.wakeups.patience(e.GroupResource()))
		case watchErr != nil:
			err = errors.Join(err, watchErr)
		case w.synced():
			ready = append(ready, e)
		case r.clock.Since(w.begun) < beginning:
			again = 0
		default: // What cannot be listed now may take long: the others are counted meanwhile.
			again = min(again, beginning)
		}
	}
	return ready, again, err
}

// counting are the evaluators of all kinds that a quota counts: the known ones, and
// those of the kinds of which it counts the number.
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

// lister reads what is watched.
func (r *reconciler) lister(ctx context.Context) quota.Lister {
	return func(resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
		return r.watches.list(ctx, r.client, resource, namespace)
	}
}

// report writes the limits and what is used of each. What was not counted keeps its
// figure, if it is limited still.
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
