// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount holds the controllers of ServiceAccounts and of their token
// Secrets:
//
//   - accounts.go creates the ServiceAccount "default" in every active namespace, which
//     pods use unless they name another one;
//   - token_fill.go issues tokens for Secrets of the type
//     kubernetes.io/service-account-token, and deletes such a Secret with its account;
//   - token_retire.go marks the tokens that clusters used to create for every account
//     invalid after a year without use, and deletes them after another one (KEP-2799).
//
// Token Secrets predate bound tokens (KEP-1205), and their tokens do not expire.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/namespaced"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// AccountsName is the identity of the controller that creates ServiceAccounts.
const AccountsName = "service-account-controller"

const (
	workers     = 4
	accountName = "default"
)

// AddAccounts registers the controller that creates the default ServiceAccount of every
// namespace. It watches namespaces, and the deletion of default ServiceAccounts.
func AddAccounts(env control.Env) error {
	r := &accountReconciler{client: env.Client}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(AccountsName).
		WithOptions(env.Options(workers)).
		For(&corev1.Namespace{}, builder.WithPredicates(namespaced.Activated())).
		Watches(&corev1.ServiceAccount{}, namespaced.ToNamespace(), builder.WithPredicates(namespaced.Deleted(accountName))).
		Complete(r)
}

type accountReconciler struct {
	client client.Client
}

// Reconcile creates the ServiceAccount of one namespace, if it is missing.
func (r *accountReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
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
