// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/utils/clock"
)

// Authenticator authenticates service account tokens. It has no opinion on tokens of other issuers;
// an invalid token of its own issuer is an error.
type Authenticator struct {
	issuer    string
	keys      *Keys
	objects   *Objects
	audiences authenticator.Audiences
	clock     clock.PassiveClock
}

var _ authenticator.Token = &Authenticator{}

// NewAuthenticator returns an Authenticator for tokens of one issuer. The audiences are the API
// server's; a TokenReview may name others.
func NewAuthenticator(issuer string, keys *Keys, objects *Objects, audiences []string, clock clock.PassiveClock) *Authenticator {
	return &Authenticator{issuer: issuer, keys: keys, objects: objects, audiences: audiences, clock: clock}
}

// AuthenticateToken implements authenticator.Token.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if unverifiedIssuer(token) != a.issuer {
		return nil, false, nil
	}
	c := &claims{}
	err := a.keys.verify(token, c)
	if errors.Is(err, errMalformed) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if c.Issuer != a.issuer {
		return nil, false, fmt.Errorf("token issuer %q is invalid", c.Issuer)
	}
	audiences, err := acceptedAudiences(ctx, authenticator.Audiences(c.Audience), a.audiences)
	if err != nil {
		return nil, false, err
	}
	now := a.clock.Now()
	if err := c.checkTimes(now); err != nil {
		return nil, false, err
	}
	if err := a.checkObjects(ctx, &c.Kubernetes, now); err != nil {
		return nil, false, err
	}
	warnStale(ctx, c, now)
	return &authenticator.Response{User: userOf(c).UserInfo(), Audiences: audiences}, true, nil
}

// unverifiedIssuer returns the issuer that a token claims, or "".
func unverifiedIssuer(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claimed struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claimed); err != nil {
		return ""
	}
	return claimed.Issuer
}

// acceptedAudiences returns the audiences of a token that the request accepts. If the token or the
// request has none, it is taken to have the API server's own.
func acceptedAudiences(ctx context.Context, audiences, own authenticator.Audiences) (authenticator.Audiences, error) {
	if len(audiences) == 0 {
		audiences = own
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = own
	}
	both := audiences.Intersect(wanted)
	if len(both) == 0 && len(own) > 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", audiences, wanted)
	}
	return both, nil
}

// checkObjects returns an error unless the service account and the object that the token is bound
// to still exist.
func (a *Authenticator) checkObjects(ctx context.Context, k *kubernetesClaims, now time.Time) error {
	account, err := a.objects.serviceAccount(ctx, k.Namespace, k.ServiceAccount.Name, types.UID(k.ServiceAccount.UID))
	if err != nil {
		return err
	}
	if string(account.UID) != k.ServiceAccount.UID {
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.UID, k.ServiceAccount.UID)
	}
	if deleted(account, now) {
		return fmt.Errorf("service account %s/%s has been deleted", k.Namespace, k.ServiceAccount.Name)
	}
	switch {
	case k.Pod != nil:
		pod, err := a.objects.pod(ctx, k.Namespace, k.Pod.Name, types.UID(k.Pod.UID))
		return stillBound("pod", k.Pod, pod, err, now)
	case k.Secret != nil:
		secret, err := a.objects.secret(ctx, k.Namespace, k.Secret.Name)
		return stillBound("secret", k.Secret, secret, err, now)
	case k.Node != nil:
		node, err := a.objects.node(ctx, k.Node.Name, types.UID(k.Node.UID))
		return stillBound("node", k.Node, node, err, now)
	default:
		return nil
	}
}

// stillBound returns an error unless the object found for a reference is the referenced one.
func stillBound(kind string, ref *reference, obj metav1.Object, err error, now time.Time) error {
	if err != nil {
		return errors.New("service account token has been invalidated")
	}
	if string(obj.GetUID()) != ref.UID {
		return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", kind, obj.GetUID(), kind, ref.UID)
	}
	if deleted(obj, now) {
		return errors.New("service account token has been invalidated")
	}
	return nil
}

// deleted reports whether an object's deletion timestamp has passed, by more than the leeway. The
// timestamp of a pod is the end of its grace period, until which its tokens stay valid.
func deleted(obj metav1.Object, now time.Time) bool {
	t := obj.GetDeletionTimestamp()
	return t != nil && t.Time.Before(now.Add(-leeway))
}

// warnStale reports the use of an extended token after its requested expiration.
func warnStale(ctx context.Context, c *claims, now time.Time) {
	after := c.Kubernetes.WarnAfter
	if after == nil || !now.After(after.Time) {
		return
	}
	audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
		fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, now.Unix()-after.Unix()))
}

func userOf(c *claims) *serviceaccount.ServiceAccountInfo {
	k := &c.Kubernetes
	info := &serviceaccount.ServiceAccountInfo{
		Namespace:    k.Namespace,
		Name:         k.ServiceAccount.Name,
		UID:          k.ServiceAccount.UID,
		CredentialID: tokenjwt.CredentialIDForJTI(c.ID),
	}
	if k.Pod != nil {
		info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
	}
	if k.Node != nil {
		info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
	}
	return info
}
