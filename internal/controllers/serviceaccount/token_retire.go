// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

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

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// RetirerName is the identity of the controller that invalidates and deletes unused tokens.
const RetirerName = "legacy-service-account-token-cleaner"

const (
	// A token is marked invalid after retirePeriod without use, and deleted after another
	// one.
	retirePeriod   = 365 * 24 * time.Hour
	retireInterval = 24 * time.Hour

	// The API server records uses in these labels and since when in the ConfigMap.
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
	trackingName      = "kube-apiserver-legacy-service-account-token-tracking"
	trackingKey       = "since"
)

// AddRetirer registers the controller. It runs once a day, and does nothing in the first
// year of a cluster.
func AddRetirer(env control.Env) error {
	r := &retirer{client: env.Client, live: env.Live, apiReader: env.Manager.GetAPIReader(), clock: env.Clock}
	return env.Every(retireInterval, r.retire)
}

type retirer struct {
	client client.Client
	// live may get the tracking ConfigMap; apiReader may list Secrets.
	live, apiReader client.Reader
	clock           clock.PassiveClock
}

// retire checks all tokens.
func (r *retirer) retire(ctx context.Context) error {
	now := r.clock.Now().UTC()
	since, err := r.trackedSince(ctx)
	if err != nil {
		return err
	}
	if now.Before(since.Add(retirePeriod)) {
		return nil
	}
	secrets := &corev1.SecretList{}
	if err := r.apiReader.List(ctx, secrets, client.MatchingFieldsSelector{Selector: tokenSecrets}); err != nil {
		return err
	}
	var errs []error
	for i := range secrets.Items {
		errs = append(errs, r.retireOne(ctx, &secrets.Items[i], now))
	}
	return errors.Join(errs...)
}

// trackedSince returns when the API server began to record uses, rounded up to the end of
// the day.
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
	action := nextAction(secret, now)
	if action == keep {
		return nil
	}
	needed, err := r.isNeeded(ctx, secret)
	if err != nil || needed {
		return err
	}
	if action == remove {
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

// action is what the controller does with a token.
type action int

const (
	keep action = iota
	invalidate
	remove
)

// nextAction decides by a token's dates. It compares days as strings, so that a use counts
// for its whole day.
func nextAction(secret *corev1.Secret, now time.Time) action {
	yearAgo := now.Add(-retirePeriod)
	if !secret.DeletionTimestamp.IsZero() || !secret.CreationTimestamp.Time.Before(yearAgo) {
		return keep
	}
	if lastUsed, used := secret.Labels[lastUsedLabel]; used && (!isDate(lastUsed) || lastUsed >= yearAgo.Format(time.DateOnly)) {
		return keep
	}
	invalidSince := secret.Labels[invalidSinceLabel]
	switch {
	case !isDate(invalidSince):
		return invalidate
	case invalidSince >= yearAgo.Format(time.DateOnly):
		return keep
	default:
		return remove
	}
}

func isDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// isNeeded reports whether a user created the token, or a pod may use it.
func (r *retirer) isNeeded(ctx context.Context, secret *corev1.Secret) (bool, error) {
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Annotations[corev1.ServiceAccountNameKey]}
	if err := r.client.Get(ctx, key, account); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	if uid := types.UID(secret.Annotations[corev1.ServiceAccountUIDKey]); uid != "" && uid != account.UID || !isListed(account, secret.Name) {
		return true, nil // controllers listed the tokens that they created in the account
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

// mentions reports whether a name occurs as a string in a pod spec. A Secret may be named
// in some twenty fields; a false match only keeps the token.
func mentions(spec *corev1.PodSpec, name string) (bool, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return true, err
	}
	return strings.Contains(string(encoded), `"`+name+`"`), nil
}
