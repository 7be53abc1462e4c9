// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package accounttoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/control"
	"github.com/kindred-project/kindred/internal/controllers/owned"
)

// RetirerName is the identity of the controller that retires tokens.
const RetirerName = "legacy-service-account-token-cleaner"

const (
	// unused is how long a token must not have been used to be marked invalid, and
	// then to be deleted.
	unused   = 365 * 24 * time.Hour
	interval = 24 * time.Hour

	// The labels and the ConfigMap are the API server's, which notes each use.
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
	trackingName      = "kube-apiserver-legacy-service-account-token-tracking"
	trackingKey       = "since"
)

// AddRetirer registers the controller. It looks once a day, and at nothing in the first
// year of a cluster.
func AddRetirer(env control.Env) error {
	r := &retirer{client: env.Client, live: env.Live, lists: env.Manager.GetAPIReader(), clock: env.Clock}
	return env.Every(interval, r.retire)
}

type retirer struct {
	client client.Client
	// live may read the tracking ConfigMap, lists may list Secrets.
	live, lists client.Reader
	clock       clock.PassiveClock
}

// retire looks at all tokens.
func (r *retirer) retire(ctx context.Context) error {
	now := r.clock.Now().UTC()
	since, err := r.trackedSince(ctx)
	if err != nil {
		return err
	}
	if now.Before(since.Add(unused)) {
		return nil
	}
	secrets := &corev1.SecretList{}
	if err := r.lists.List(ctx, secrets, client.MatchingFieldsSelector{Selector: tokenSecrets}); err != nil {
		return err
	}
	var errs []error
	for i := range secrets.Items {
		errs = append(errs, r.retireOne(ctx, &secrets.Items[i], now))
	}
	return errors.Join(errs...)
}

// trackedSince is when uses were noted from: the end of the day on which that began.
func (r *retirer) trackedSince(ctx context.Context) (time.Time, error) {
	tracking := &corev1.ConfigMap{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: trackingName}, tracking); err != nil {
		return time.Time{}, err
	}
	since, err := time.Parse(time.DateOnly, tracking.Data[trackingKey])
	if err != nil {
		return time.Time{}, fmt.Errorf("ConfigMap %s: %w", trackingName, err)
	}
	return since.AddDate(0, 0, 1), nil
}

func (r *retirer) retireOne(ctx context.Context, secret *corev1.Secret, now time.Time) error {
	step := next(secret, now)
	if step == keep {
		return nil
	}
	needed, err := r.isNeeded(ctx, secret)
	if err != nil || needed {
		return err
	}
	if step == remove {
		return owned.IgnoreStale(r.client.Delete(ctx, secret, client.Preconditions{ResourceVersion: &secret.ResourceVersion}))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID, "labels": map[string]string{invalidSinceLabel: now.Format(time.DateOnly)},
	}})
	if err != nil {
		return err
	}
	return owned.IgnoreStale(r.client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, patch)))
}

// step is what is done about a token.
type step int

const (
	keep step = iota
	invalidate
	remove
)

// next decides by a token's dates. Days are compared as they are written, so that a day
// of use counts as a whole.
func next(secret *corev1.Secret, now time.Time) step {
	long := now.Add(-unused)
	if !secret.DeletionTimestamp.IsZero() || !secret.CreationTimestamp.Time.Before(long) {
		return keep
	}
	if lastUsed, used := secret.Labels[lastUsedLabel]; used && (!isDate(lastUsed) || lastUsed >= long.Format(time.DateOnly)) {
		return keep
	}
	invalidSince := secret.Labels[invalidSinceLabel]
	switch {
	case !isDate(invalidSince):
		return invalidate
	case invalidSince >= long.Format(time.DateOnly):
		return keep
	default:
		return remove
	}
}

func isDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// isNeeded reports whether a token was made by hand, or a pod may have it in use.
func (r *retirer) isNeeded(ctx context.Context, secret *corev1.Secret) (bool, error) {
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Annotations[corev1.ServiceAccountNameKey]}
	if err := r.client.Get(ctx, key, account); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	if uid := types.UID(secret.Annotations[corev1.ServiceAccountUIDKey]); uid != "" && uid != account.UID || !references(account, secret.Name) {
		return true, nil // only those that an account lists were made by a controller
	}
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(secret.Namespace)); err != nil {
		return true, err
	}
	for i := range pods.Items {
		if mentioned, err := mentions(&pods.Items[i].Spec, secret.Name); err != nil || mentioned {
			return true, err
		}
	}
	return false, nil
}

// mentions reports whether a name stands anywhere in a pod's spec. A Secret can be meant
// in some twenty places there; one that is only called like something else is kept.
func mentions(spec *corev1.PodSpec, name string) (bool, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return true, err
	}
	return strings.Contains(string(encoded), `"`+name+`"`), nil
}
