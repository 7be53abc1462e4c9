// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// CleanerName is the cleaner's identity.
const CleanerName = "token-cleaner"

// AddCleaner registers the cleaner. It watches tokens, and requeues them for their expiry.
func AddCleaner(env control.Env) error {
	secrets, err := tokens(env)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(CleanerName).
		WithOptions(env.Options(1)).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		Complete(&cleaner{client: env.Client, secrets: secrets, clock: env.Clock})
}

type cleaner struct {
	client  client.Client
	secrets client.Reader
	clock   clock.PassiveClock
}

// Reconcile deletes one expired token, or requeues it for its expiry.
func (c *cleaner) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := c.secrets.Get(ctx, req.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	left, expired := bootstrapsecrets.GetExpiration(secret, c.clock.Now())
	if !expired {
		return ctrl.Result{RequeueAfter: left}, nil // 0, which means never, for a token without expiry
	}
	return ctrl.Result{}, owned.IgnoreStale(c.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}))
}
