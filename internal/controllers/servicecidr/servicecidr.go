// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servicecidr sets the condition Ready of ServiceCIDRs, and delays the deletion of a
// ServiceCIDR until every address in use is covered by another one (KEP-1880).
package servicecidr

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// Name is the controller's identity.
const Name = "service-cidrs-controller"

const (
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// gracePeriod is the time that an unused range is kept after its deletion, so that all API
	// servers stop allocating from it.
	gracePeriod = 10 * time.Second
	// managedBy is the value of the managed-by label of addresses claimed by API servers.
	managedBy = "ipallocator.k8s.io"
)

// Add registers the controller. It watches ServiceCIDRs; any ServiceCIDR, and the deletion of any
// IPAddress, requeues those that are being deleted.
func Add(env control.Env) error {
	r := &reconciler{client: env.Client, events: env.Events, clock: env.Clock}
	deletions := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(1)).
		For(&networkingv1.ServiceCIDR{}).
		Watches(&networkingv1.ServiceCIDR{}, handler.EnqueueRequestsFromMapFunc(r.terminating)).
		Watches(&networkingv1.IPAddress{}, handler.EnqueueRequestsFromMapFunc(r.terminating), builder.WithPredicates(deletions)).
		Complete(r)
}

type reconciler struct {
	client client.Client
	events record.EventRecorder
	clock  clock.PassiveClock
}

// terminating returns a request for each range that is being deleted.
func (r *reconciler) terminating(ctx context.Context, _ client.Object) []reconcile.Request {
	ranges := &networkingv1.ServiceCIDRList{}
	if err := r.client.List(ctx, ranges); err != nil {
		return nil // a cache fails only before it is started
	}
	var requests []reconcile.Request
	for i := range ranges.Items {
		if !ranges.Items[i].DeletionTimestamp.IsZero() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&ranges.Items[i])})
		}
	}
	return requests
}

// Reconcile updates the finalizer and the condition of one range.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	found := &networkingv1.ServiceCIDR{}
	if err := r.client.Get(ctx, req.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	found = found.DeepCopy()
	if !found.DeletionTimestamp.IsZero() {
		return r.remove(ctx, found)
	}
	if controllerutil.AddFinalizer(found, finalizer) {
		if err := r.client.Update(ctx, found); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	err := r.setReady(ctx, found, metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"})
	if err != nil && !apierrors.IsConflict(err) {
		r.events.Event(found, corev1.EventTypeWarning, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")
	}
	return ctrl.Result{}, err
}

func (r *reconciler) remove(ctx context.Context, deleted *networkingv1.ServiceCIDR) (ctrl.Result, error) {
	needed, err := r.isNeeded(ctx, deleted)
	if err != nil {
		return ctrl.Result{}, err
	}
	if needed {
		return ctrl.Result{}, r.setReady(ctx, deleted, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
		})
	}
	if wait := gracePeriod - r.clock.Since(deleted.DeletionTimestamp.Time); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if !controllerutil.RemoveFinalizer(deleted, finalizer) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Update(ctx, deleted))
}

// isNeeded reports whether an address in use is covered by this range and by no other.
func (r *reconciler) isNeeded(ctx context.Context, deleted *networkingv1.ServiceCIDR) (bool, error) {
	ranges := &networkingv1.ServiceCIDRList{}
	if err := r.client.List(ctx, ranges); err != nil {
		return false, err
	}
	addresses := &networkingv1.IPAddressList{}
	if err := r.client.List(ctx, addresses, client.MatchingLabels{networkingv1.LabelManagedBy: managedBy}); err != nil {
		return false, err
	}
	for i := range addresses.Items {
		address, err := netip.ParseAddr(addresses.Items[i].Name)
		if err != nil || !contains(deleted, address) {
			continue
		}
		if !inOtherRange(ranges.Items, deleted.Name, address) {
			return true, nil
		}
	}
	return false, nil
}

// inOtherRange reports whether a range of another name contains the address.
func inOtherRange(ranges []networkingv1.ServiceCIDR, except string, address netip.Addr) bool {
	for i := range ranges {
		if ranges[i].Name != except && contains(&ranges[i], address) {
			return true
		}
	}
	return false
}

func contains(r *networkingv1.ServiceCIDR, address netip.Addr) bool {
	for _, cidr := range r.Spec.CIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Contains(address) {
			return true
		}
	}
	return false
}

// setReady sets the condition Ready if its status or reason changes. A different message, such as that of
// the API server for the default range, stays.
func (r *reconciler) setReady(ctx context.Context, cidr *networkingv1.ServiceCIDR, ready metav1.Condition) error {
	ready.Type = networkingv1.ServiceCIDRConditionReady
	if now := meta.FindStatusCondition(cidr.Status.Conditions, ready.Type); now != nil && now.Status == ready.Status && now.Reason == ready.Reason {
		return nil
	}
	ready.LastTransitionTime = metav1.NewTime(r.clock.Now())
	meta.SetStatusCondition(&cidr.Status.Conditions, ready)
	return client.IgnoreNotFound(r.client.Status().Update(ctx, cidr))
}
