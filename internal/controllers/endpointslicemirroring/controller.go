// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are deprecated, but users still write them.

package endpointslicemirroring

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

const (
	// Name is the controller's identity.
	Name = "endpointslicemirroring-controller"
	// Source is the component of its events.
	Source  = "endpoint-slice-mirroring-controller"
	workers = 5
)

// Add registers the controller.
func Add(env control.Env) error {
	seen, err := owned.Index(context.Background(), env.Manager.GetCache(), &discoveryv1.EndpointSlice{})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Endpoints{}, builder.WithPredicates(mirroredChanges())).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(selectorChanges())).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(backends.ServiceOfSlice(managedBy))).
		Complete(newReconciler(env, seen))
}

// mirroredChanges passes events of Endpoints that are mirrored, or were.
func mirroredChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return mirrored(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return mirrored(e.ObjectOld) || mirrored(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return mirrored(e.Object) },
	}
}

// selectorChanges passes events after which a Service without a selector is new, gone, or has got one.
func selectorChanges() predicate.Predicate {
	selects := func(obj client.Object) bool { return obj.(*corev1.Service).Spec.Selector != nil }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !selects(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return selects(e.ObjectOld) != selects(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return !selects(e.Object) },
	}
}

type reconciler struct {
	client client.Client
	events record.EventRecorder
	ledger *owned.Ledger[*discoveryv1.EndpointSlice]
}

func newReconciler(env control.Env, seen func() string) *reconciler {
	return &reconciler{client: env.Client, events: env.Events, ledger: owned.NewLedger[*discoveryv1.EndpointSlice](seen)}
}

// Reconcile brings the slices of one Endpoints object up to date. The garbage collector removes those of
// deleted Endpoints.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	endpoints := &corev1.Endpoints{}
	if ok, err := owned.Fetch(ctx, r.client, req, endpoints, r.ledger.Forget); !ok {
		return ctrl.Result{}, err
	}
	existing, err := r.ledger.Read(endpoints, func() ([]*discoveryv1.EndpointSlice, error) { return r.list(ctx, endpoints) })
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, err := r.wanted(ctx, endpoints)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.apply(ctx, endpoints, plan(wanted, existing))
}

// list returns the slices of Endpoints that this controller has created.
func (r *reconciler) list(ctx context.Context, endpoints *corev1.Endpoints) ([]*discoveryv1.EndpointSlice, error) {
	found := &discoveryv1.EndpointSliceList{}
	err := r.client.List(ctx, found, owned.By(endpoints.Namespace, string(endpoints.UID))...)
	var out []*discoveryv1.EndpointSlice
	for i := range found.Items {
		if found.Items[i].DeletionTimestamp == nil && found.Items[i].Labels[discoveryv1.LabelManagedBy] == managedBy {
			out = append(out, &found.Items[i])
		}
	}
	return out, err
}

// wanted returns the slices that Endpoints should have.
func (r *reconciler) wanted(ctx context.Context, endpoints *corev1.Endpoints) ([]*discoveryv1.EndpointSlice, error) {
	if !mirrored(endpoints) || endpoints.DeletionTimestamp != nil {
		return nil, nil
	}
	service := &corev1.Service{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(endpoints), service)
	if err != nil || service.Spec.Selector != nil {
		return nil, client.IgnoreNotFound(err)
	}
	content := mirror(endpoints)
	if content.invalid > 0 {
		r.events.Eventf(endpoints, corev1.EventTypeWarning, "InvalidIPAddress",
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", content.invalid)
	}
	if content.excess > 0 {
		r.events.Eventf(endpoints, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", capacity, content.excess+content.invalid)
	}
	return content.slices, nil
}

// apply writes the changes.
func (r *reconciler) apply(ctx context.Context, endpoints *corev1.Endpoints, c changes) error {
	for _, slice := range c.create {
		if err := r.client.Create(ctx, slice); err != nil {
			return owned.IgnoreStale(err)
		}
		r.ledger.Wrote(endpoints, slice)
	}
	for _, slice := range c.update {
		if err := r.client.Update(ctx, slice); err != nil {
			return owned.IgnoreStale(err)
		}
		r.ledger.Wrote(endpoints, slice)
	}
	for _, slice := range c.remove {
		err := r.client.Delete(ctx, slice.DeepCopy(), client.Preconditions{UID: &slice.UID})
		if client.IgnoreNotFound(err) != nil {
			return owned.IgnoreStale(err)
		}
		r.ledger.Deleted(endpoints, slice)
	}
	return nil
}

// same reports whether an existing slice has the wanted content.
func same(existing, wanted *discoveryv1.EndpointSlice) bool {
	return apiequality.Semantic.DeepEqual(existing.Labels, wanted.Labels) &&
		apiequality.Semantic.DeepEqual(existing.Annotations, wanted.Annotations) &&
		apiequality.Semantic.DeepEqual(existing.Ports, wanted.Ports) &&
		apiequality.Semantic.DeepEqual(existing.Endpoints, wanted.Endpoints)
}

// changed returns an existing slice with the wanted content.
func changed(existing, wanted *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := existing.DeepCopy()
	out.Labels, out.Annotations, out.Ports, out.Endpoints = wanted.Labels, wanted.Annotations, wanted.Ports, wanted.Endpoints
	return out
}
