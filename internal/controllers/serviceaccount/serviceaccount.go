// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount sees to it that every active namespace has a
// ServiceAccount named "default", which pods run as unless they name another.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/namespaced"
	"github.com/kindred-project/kindred/internal/controllers/owned"
)

// Name is the controller's identity.
const Name = "service-account-controller"

const (
	workers     = 4
	accountName = "default"
)

// Add registers the controller: woken by namespaces, and by the loss of a
// default ServiceAccount.
func Add(env control.Env) error {
	r := &reconciler{client: env.Client}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Namespace{}, builder.WithPredicates(namespaced.Arrivals())).
		Watches(&corev1.ServiceAccount{}, namespaced.Wake(), builder.WithPredicates(namespaced.Losses(accountName))).
		Complete(r)
}

type reconciler struct {
	client client.Client
}

// Reconcile creates the ServiceAccount of one namespace, if it is missing.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	active, err := namespaced.Active(ctx, r.client, req.Name)
	if err != nil || !active {
		return ctrl.Result{}, err
	}
	err = r.client.Get(ctx, client.ObjectKey{Namespace: req.Name, Name: accountName}, &corev1.ServiceAccount{})
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: req.Name, Name: accountName}}
	err = r.client.Create(ctx, account)
	if apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, owned.IgnoreStale(err)
}
