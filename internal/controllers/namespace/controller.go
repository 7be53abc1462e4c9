// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Name is the controller's identity.
const Name = "namespace-controller"

const (
	// workers limits the namespaces that are emptied at a time.
	workers = 8
	// minDelay and maxDelay limit the time between two passes.
	minDelay = 20 * time.Millisecond
	maxDelay = 10 * time.Second
	// finalCheckDelay is the time after its removal at which a namespace is checked again: by then
	// every request that was admitted before has been stored.
	finalCheckDelay = 5 * time.Second
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Add registers the controller. It watches terminating namespaces, the end of their pods, and
// CRDs, whose changes invalidate the cached discovery.
func Add(env control.Env) error {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(env.Manager.GetConfig(), env.Manager.GetHTTPClient())
	if err != nil {
		return err
	}
	r := newReconciler(env, api.ServerPreferredNamespacedResources)
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.NewPredicateFuncs(isTerminating))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.namespaceOfPod), builder.WithPredicates(deletions())).
		WatchesMetadata(crd, handler.EnqueueRequestsFromMapFunc(r.crdChanged)).
		Complete(r)
}

type reconciler struct {
	client  client.Client
	live    client.Reader
	clock   clock.PassiveClock
	catalog *catalog

	mu sync.Mutex
	// inProgress holds the namespaces with remaining content.
	inProgress map[string]progress
	// released holds the times at which the controller removed its finalizer from namespaces.
	released map[string]time.Time
}

// progress is how far the deletion of a namespace's content has come.
type progress struct {
	remaining int // objects after the last pass
	passes    int // without progress
}

func newReconciler(env control.Env, discover func() ([]*metav1.APIResourceList, error)) *reconciler {
	return &reconciler{
		client:     env.Client,
		live:       env.Live,
		clock:      env.Clock,
		catalog:    &catalog{discover: discover, clock: env.Clock},
		inProgress: map[string]progress{},
		released:   map[string]time.Time{},
	}
}

// Reconcile makes one pass over one namespace.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, cached); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return r.finalCheck(ctx, req.Name)
		}
		return ctrl.Result{}, err
	}
	if cached.DeletionTimestamp == nil || !hasFinalizer(cached) {
		return ctrl.Result{}, nil
	}
	// A stale read must not empty a namespace that was recreated.
	ns := &corev1.Namespace{}
	if err := r.live.Get(ctx, req.NamespacedName, ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if ns.UID != cached.UID || ns.DeletionTimestamp == nil || !hasFinalizer(ns) {
		return ctrl.Result{}, nil
	}
	return r.finalize(ctx, ns)
}

// finalize deletes the content of a namespace, and releases the namespace when it is empty.
func (r *reconciler) finalize(ctx context.Context, ns *corev1.Namespace) (ctrl.Result, error) {
	running := &corev1.PodList{}
	if err := r.client.List(ctx, running, client.InNamespace(ns.Name), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	r.startWaiting(ns.Name)
	found := r.clear(ctx, ns.Name, endOfPods(ns, running))
	done := found.isEmpty() && !found.hasFailed()
	if err := r.report(ctx, ns, found, done); err != nil {
		return ctrl.Result{}, owned.IgnoreStale(err)
	}
	if !done {
		delay := r.delay(ns.Name, found)
		klog.FromContext(ctx).V(4).Info("Content remains in the namespace", "namespace", ns.Name, "remaining", found.remaining, "errors", found.content, "delay", delay)
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	r.markReleased(ns.Name)
	return ctrl.Result{}, owned.IgnoreStale(r.release(ctx, ns))
}

// report writes phase and conditions. It skips the conditions of a namespace that is about to
// be removed.
func (r *reconciler) report(ctx context.Context, ns *corev1.Namespace, found *findings, done bool) error {
	if done && len(ns.Spec.Finalizers) == 1 && len(ns.Finalizers) == 0 {
		return nil
	}
	changed := apply(&ns.Status.Conditions, conditionStates(found), r.clock.Now())
	if ns.Status.Phase != corev1.NamespaceTerminating {
		ns.Status.Phase, changed = corev1.NamespaceTerminating, true
	}
	if !changed {
		return nil
	}
	return r.client.Status().Update(ctx, ns)
}

// release removes the finalizer. After the last one, the API removes the namespace.
func (r *reconciler) release(ctx context.Context, ns *corev1.Namespace) error {
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	return r.client.SubResource("finalize").Update(ctx, ns)
}

// finalCheck deletes objects that were stored after the namespace was released.
func (r *reconciler) finalCheck(ctx context.Context, name string) (ctrl.Result, error) {
	r.mu.Lock()
	released, wasReleased := r.released[name]
	r.mu.Unlock()
	if !wasReleased {
		return ctrl.Result{}, nil
	}
	if wait := released.Add(finalCheckDelay).Sub(r.clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	left, err := r.leftovers(ctx, name)
	if err != nil {
		return ctrl.Result{}, err
	}
	// The namespace is read after the list: if it does not exist, no listed object belongs
	// to a new namespace of that name. Deletion by UID protects later objects.
	err = r.live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
	if err == nil {
		r.forget(name)
		return ctrl.Result{}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	for i := range left {
		klog.FromContext(ctx).Info("An object outlived its namespace, deleting it", "kind", left[i].Kind, "object", klog.KObj(&left[i]))
		err := r.client.Delete(ctx, &left[i], client.Preconditions{UID: &left[i].UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if owned.IgnoreStale(err) != nil {
			return ctrl.Result{}, err
		}
	}
	r.forget(name)
	return ctrl.Result{}, nil
}

// startWaiting adds the namespace to inProgress, so that the end of its last pod wakes it.
func (r *reconciler) startWaiting(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.inProgress[name]; !waits {
		r.inProgress[name] = progress{}
	}
}

// delay returns the delay until the next pass, which grows with each pass without progress.
func (r *reconciler) delay(name string, found *findings) time.Duration {
	remaining := 0
	for _, n := range found.remaining {
		remaining += n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.inProgress[name]
	next := progress{remaining: remaining, passes: last.passes + 1}
	if remaining < last.remaining {
		next.passes = 0
	}
	r.inProgress[name] = next
	return min(maxDelay, minDelay<<min(next.passes, 16))
}

func (r *reconciler) markReleased(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inProgress, name)
	r.released[name] = r.clock.Now()
}

func (r *reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inProgress, name)
	delete(r.released, name)
}

// namespaceOfPod returns a request for the namespace of an ended pod, if the namespace waits for
// pods and this was the last one.
func (r *reconciler) namespaceOfPod(ctx context.Context, pod client.Object) []reconcile.Request {
	name := pod.GetNamespace()
	r.mu.Lock()
	_, waits := r.inProgress[name]
	r.mu.Unlock()
	if !waits {
		return nil
	}
	others := &corev1.PodList{}
	if err := r.client.List(ctx, others, client.InNamespace(name), client.Limit(1), client.UnsafeDisableDeepCopy); err == nil && len(others.Items) > 0 {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// crdChanged invalidates the discovery. It returns no requests, since no namespace waits for a
// new kind.
func (r *reconciler) crdChanged(context.Context, client.Object) []reconcile.Request {
	r.catalog.invalidate()
	return nil
}

// hasFinalizer reports whether the namespace waits for this controller.
func hasFinalizer(ns *corev1.Namespace) bool {
	return slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

func isTerminating(obj client.Object) bool { return obj.GetDeletionTimestamp() != nil }

// deletions passes deletions of objects.
func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
