// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but still served to clients that read them.

package endpoints

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Name is the controller's identity, and the value of managedByLabel.
const Name = "endpoint-controller"

const (
	workers        = 5
	managedByLabel = "endpoints.kubernetes.io/managed-by"
	// overCapacity is the value of the annotation of truncated Endpoints.
	overCapacity = "truncated"
	// staleDelay is the delay before a retry with a stale cache. That is no error: a Service and its pods
	// change faster than the cache follows the controller's own writes. Changes of Endpoints by other
	// clients do not wake the controller.
	staleDelay = 50 * time.Millisecond
)

// Add registers the controller. It watches Services, the pods that they select, deletions of
// Endpoints, and changes of Endpoints that it has created.
func Add(env control.Env) error {
	r := newReconciler(env)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Service{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.servicesOf), builder.WithPredicates(backends.PodChanges())).
		Watches(&corev1.Endpoints{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(managedChanges())).
		Complete(r)
}

// managedChanges passes deletions of any Endpoints, and all events of Endpoints that this
// controller has created.
func managedChanges() predicate.Predicate {
	managed := func(obj client.Object) bool { return obj.GetLabels()[managedByLabel] == Name }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return managed(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return managed(e.ObjectOld) || managed(e.ObjectNew) },
	}
}

type reconciler struct {
	client   client.Client
	events   record.EventRecorder
	triggers *util.TriggerTimeTracker
}

func newReconciler(env control.Env) *reconciler {
	return &reconciler{client: env.Client, events: env.Events, triggers: util.NewTriggerTimeTracker()}
}

// Reconcile brings the Endpoints of one Service up to date.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	service := &corev1.Service{}
	err := r.client.Get(ctx, req.NamespacedName, service)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.remove(ctx, req.NamespacedName)
	}
	if err != nil || !backends.Selects(service) || ownership.IsHeld(service) {
		return ctrl.Result{}, err
	}
	selected, err := pods.List(ctx, r.client, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector), client.UnsafeDisableDeepCopy)
	if err != nil {
		return ctrl.Result{}, err
	}
	current := &corev1.Endpoints{}
	if err := r.client.Get(ctx, req.NamespacedName, current); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	changed := r.triggers.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, selected)
	err = r.write(ctx, service, current, wanted(service, selected, current, changed))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: staleDelay}, nil
	}
	return ctrl.Result{}, err
}

// wanted returns the desired Endpoints. current holds the existing ones, or is empty.
func wanted(service *corev1.Service, selected []*corev1.Pod, current *corev1.Endpoints, changed time.Time) *corev1.Endpoints {
	out := current.DeepCopy()
	out.Namespace, out.Name = service.Namespace, service.Name
	out.Labels = map[string]string{}
	maps.Copy(out.Labels, service.Labels)
	delete(out.Labels, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
		out.Labels[corev1.IsHeadlessService] = ""
	}
	out.Labels[managedByLabel] = Name
	var truncated bool
	out.Subsets, truncated = subsetsOf(service, selected)
	delete(out.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, corev1.EndpointsOverCapacity, overCapacity)
	}
	if apiequality.Semantic.DeepEqual(out, current) {
		return out
	}
	// The trigger time is updated only together with other changes.
	delete(out.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !changed.IsZero() {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, corev1.EndpointsLastChangeTriggerTime, changed.UTC().Format(time.RFC3339Nano))
	}
	return out
}

// write creates or updates the Endpoints if they have changed.
func (r *reconciler) write(ctx context.Context, service *corev1.Service, current, wanted *corev1.Endpoints) error {
	if current.ResourceVersion == "" {
		err := r.client.Create(ctx, wanted)
		if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			r.events.Eventf(wanted, corev1.EventTypeWarning, "FailedToCreateEndpoint", "Failed to create endpoint for service %v/%v: %v", service.Namespace, service.Name, err)
		}
		return err
	}
	if apiequality.Semantic.DeepEqual(current, wanted) {
		return nil
	}
	err := r.client.Update(ctx, wanted)
	if err != nil && !apierrors.IsConflict(err) {
		r.events.Eventf(wanted, corev1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v/%v: %v", service.Namespace, service.Name, err)
	}
	return err
}

// remove deletes the Endpoints of a deleted Service. They have no owner reference, so the garbage
// collector does not.
func (r *reconciler) remove(ctx context.Context, service types.NamespacedName) error {
	r.triggers.DeleteService(service.Namespace, service.Name)
	current := &corev1.Endpoints{}
	if err := r.client.Get(ctx, service, current); err != nil {
		return client.IgnoreNotFound(err)
	}
	err := r.client.Delete(ctx, current.DeepCopy(), client.Preconditions{UID: &current.UID})
	return client.IgnoreNotFound(err)
}

func (r *reconciler) servicesOf(ctx context.Context, pod client.Object) []reconcile.Request {
	return backends.ServicesOf(ctx, r.client, pod)
}
