// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"bytes"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// TokensName is the name of the controller that fills in tokens. No service account has
// that name: the controller does not act as one.
const TokensName = "tokens-controller"

const tokenWorkers = 5

// IssueToken returns a token of a service account that is valid as long as the Secret with
// it exists.
type IssueToken func(account *corev1.ServiceAccount, secret string) (string, error)

// AddTokens returns the function that registers the controller which fills in token
// Secrets. It watches these Secrets, and deletions of accounts.
func AddTokens(issue IssueToken, ca []byte) func(control.Env) error {
	return func(env control.Env) error {
		secrets, err := env.Select(&corev1.Secret{}, "", tokenSecrets)
		if err != nil {
			return err
		}
		f := &filler{client: env.Client, live: env.Live, secrets: secrets, issue: issue, ca: ca}
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(TokensName).
			WithOptions(env.Options(tokenWorkers)).
			WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
			Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(f.tokensOf), builder.WithPredicates(accountDeletions)).
			Complete(f)
	}
}

// accountDeletions passes deletions of accounts, and updates that replace an account by a
// new one of the same name.
var accountDeletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

type filler struct {
	client client.Client
	live   client.Reader
	// secrets reads only token Secrets.
	secrets client.Reader
	issue   IssueToken
	ca      []byte
}

// tokensOf returns a request for each token Secret of an account.
func (f *filler) tokensOf(ctx context.Context, account client.Object) []reconcile.Request {
	all := &corev1.SecretList{}
	if err := f.secrets.List(ctx, all, client.InNamespace(account.GetNamespace())); err != nil {
		return nil // a cache fails only before it is started
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if all.Items[i].Annotations[corev1.ServiceAccountNameKey] == account.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// Reconcile fills in one Secret, or deletes it if its account does not exist.
func (f *filler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	err := f.secrets.Get(ctx, req.NamespacedName, secret)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, f.unlistAll(ctx, req.NamespacedName)
	}
	if err != nil || !secret.DeletionTimestamp.IsZero() || ownership.IsHeld(secret) {
		return ctrl.Result{}, err
	}
	account, err := f.accountOf(ctx, secret)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, owned.IgnoreStale(f.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}))
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	filled, err := f.fill(secret, account)
	if err != nil || filled == nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, owned.IgnoreStale(f.client.Update(ctx, filled))
}

// accountOf returns the account that a Secret names. Only the API, not the cache, decides
// that the account does not exist.
func (f *filler) accountOf(ctx context.Context, secret *corev1.Secret) (*corev1.ServiceAccount, error) {
	key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Annotations[corev1.ServiceAccountNameKey]}
	uid := types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
	account := &corev1.ServiceAccount{}
	for _, reader := range []client.Reader{f.client, f.live} {
		err := reader.Get(ctx, key, account)
		if err == nil && (uid == "" || uid == account.UID) {
			return account, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
}

// fill returns a copy of the Secret with its missing data, or nil if nothing is missing.
func (f *filler) fill(secret *corev1.Secret, account *corev1.ServiceAccount) (*corev1.Secret, error) {
	noCA := len(f.ca) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], f.ca)
	noNamespace := len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0
	noToken := len(secret.Data[corev1.ServiceAccountTokenKey]) == 0
	if !noCA && !noNamespace && !noToken {
		return nil, nil
	}
	secret = secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if noCA {
		secret.Data[corev1.ServiceAccountRootCAKey] = f.ca
	}
	if noNamespace {
		secret.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if noToken {
		token, err := f.issue(account, secret.Name)
		if err != nil {
			return nil, err
		}
		secret.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, corev1.ServiceAccountNameKey, account.Name)
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	return secret, nil
}

// unlistAll removes a deleted Secret from the accounts that list it.
func (f *filler) unlistAll(ctx context.Context, secret client.ObjectKey) error {
	accounts := &corev1.ServiceAccountList{}
	if err := f.client.List(ctx, accounts, client.InNamespace(secret.Namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range accounts.Items {
		if account := &accounts.Items[i]; isListed(account, secret.Name) {
			errs = append(errs, f.unlist(ctx, account.DeepCopy(), secret))
		}
	}
	return errors.Join(errs...)
}

// unlist removes a Secret from the account's list, unless the API has a Secret of that name,
// which may be of another type.
func (f *filler) unlist(ctx context.Context, account *corev1.ServiceAccount, secret client.ObjectKey) error {
	if err := f.live.Get(ctx, secret, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		return err
	}
	account.Secrets = slices.DeleteFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret.Name })
	// A conflict is retried, since no event would wake the controller again.
	return client.IgnoreNotFound(f.client.Update(ctx, account))
}
