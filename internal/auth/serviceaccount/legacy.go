// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// LegacyIssuer is the issuer of tokens in Secrets, the same in every cluster.
const LegacyIssuer = "kubernetes/serviceaccount"

const (
	// lastUsedLabel has the day on which the token in a Secret was last used, invalidSinceLabel the
	// day since which it is refused (KEP-2799).
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// legacyClaims is the content of a token in a Secret, which never expires.
type legacyClaims struct {
	jwt.RegisteredClaims
	Namespace  string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret     string `json:"kubernetes.io/serviceaccount/secret.name"`
	Account    string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// LegacyToken returns the token of an account that is valid as long as the named Secret contains
// it.
func (k *Keys) LegacyToken(account *corev1.ServiceAccount, secret string) (string, error) {
	return k.sign(legacyClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: LegacyIssuer, Subject: serviceaccount.MakeUsername(account.Namespace, account.Name)},
		Namespace:        account.Namespace,
		Secret:           secret,
		Account:          account.Name,
		AccountUID:       string(account.UID),
	})
}

// Legacy authenticates tokens in Secrets, and records their last use on the Secret.
type Legacy struct {
	keys      *Keys
	objects   *Objects
	audiences authenticator.Audiences
	clock     clock.PassiveClock
}

var _ authenticator.Token = &Legacy{}

// NewLegacy returns a Legacy that reads the Secrets from objects.
func NewLegacy(keys *Keys, objects *Objects, audiences []string, clock clock.PassiveClock) *Legacy {
	return &Legacy{keys: keys, objects: objects, audiences: audiences, clock: clock}
}

// AuthenticateToken implements authenticator.Token.
func (l *Legacy) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if unverifiedIssuer(token) != LegacyIssuer {
		return nil, false, nil
	}
	c := &legacyClaims{}
	err := l.keys.verify(token, c)
	if errors.Is(err, errMalformed) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	audiences, err := acceptedAudiences(ctx, authenticator.Audiences(c.Audience), l.audiences)
	if err != nil {
		return nil, false, err
	}
	if err := c.check(); err != nil {
		return nil, false, err
	}
	if err := l.checkObjects(ctx, c, token); err != nil {
		return nil, false, err
	}
	account := &serviceaccount.ServiceAccountInfo{Namespace: c.Namespace, Name: c.Account, UID: c.AccountUID}
	return &authenticator.Response{User: account.UserInfo(), Audiences: audiences}, true, nil
}

// check returns an error unless the claims are complete and consistent.
func (c *legacyClaims) check() error {
	for _, claim := range []struct{ name, value string }{
		{"sub", c.Subject}, {"namespace", c.Namespace}, {"secretName", c.Secret},
		{"serviceAccountName", c.Account}, {"serviceAccountUID", c.AccountUID},
	} {
		if claim.value == "" {
			return fmt.Errorf("%s claim is missing", claim.name)
		}
	}
	if c.Subject != serviceaccount.MakeUsername(c.Namespace, c.Account) {
		return errors.New("sub claim is invalid")
	}
	return nil
}

// Errors that a TokenReview contains, in upstream's words.
var (
	//lint:ignore ST1005 upstream's words
	errInvalidated = errors.New("Token has been invalidated")
	//lint:ignore ST1005 upstream's words
	errNotTheCopy = errors.New("Token does not match server's copy")
)

// checkObjects returns an error unless the Secret still contains the token, and its account still
// exists.
func (l *Legacy) checkObjects(ctx context.Context, c *legacyClaims, token string) error {
	secret, err := l.objects.secret(ctx, c.Namespace, c.Secret)
	if err != nil || secret.DeletionTimestamp != nil {
		return errInvalidated
	}
	if subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 0 {
		return errNotTheCopy
	}
	account, err := l.objects.serviceAccount(ctx, c.Namespace, c.Account, types.UID(c.AccountUID))
	switch {
	case err != nil:
		return err
	case account.DeletionTimestamp != nil:
		return fmt.Errorf("ServiceAccount %s/%s has been deleted", c.Namespace, c.Account)
	case string(account.UID) != c.AccountUID:
		return fmt.Errorf("ServiceAccount UID (%s) does not match claim (%s)", account.UID, c.AccountUID)
	}
	l.recordUse(ctx, secret)
	if secret.Labels[invalidSinceLabel] != "" {
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-invalidated", secret.Name+"/"+secret.Namespace)
		return fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, "+
			"or remove the '%s' label from the secret to temporarily allow use of this token", c.Namespace, c.Secret, c.Namespace, c.Account, invalidSinceLabel)
	}
	warnIfGenerated(ctx, account, secret.Name)
	return nil
}

// warnIfGenerated warns about the use of a token that a former version of Kubernetes generated for
// each account. Such a token is in a Secret that the account lists.
func warnIfGenerated(ctx context.Context, account *corev1.ServiceAccount, secret string) {
	for _, ref := range account.Secrets {
		if ref.Name == secret {
			warning.AddWarning(ctx, "", "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.")
			audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-autogenerated-secret", secret)
			return
		}
	}
	audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-manual-secret", secret)
}

// recordUse writes the current day to the Secret, once a day. It accepts the next day as well, because
// the clock of another server that recorded it may be ahead.
func (l *Legacy) recordUse(ctx context.Context, secret *corev1.Secret) {
	now := l.clock.Now().UTC()
	today, tomorrow := now.Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	if last := secret.Labels[lastUsedLabel]; last == today || last == tomorrow {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID, "labels": map[string]string{lastUsedLabel: today},
	}})
	if err == nil {
		_, err = l.objects.client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot record the use of a token", "secret", klog.KObj(secret))
	}
}
