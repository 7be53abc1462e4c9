// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount issues and verifies the tokens of service accounts.
//
// A token is a JWT, signed with ES256, that names a service account and, where
// it is bound, a pod, secret or node (KEP-1205, KEP-4193). It is good until it
// expires, and not a moment longer than the service account and the object it
// is bound to exist under the same UIDs: deleting a pod revokes its tokens.
//
// The Issuer answers TokenRequests; the Authenticator is an authenticator.Token;
// Discovery lets others verify tokens by OpenID Connect, without asking the API
// server about each. All three share one Keys value.
package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultIssuerURL is the issuer of clusters that nobody gave another name; it
// is also the only audience of the API server itself.
const DefaultIssuerURL = "https://kubernetes.default.svc.cluster.local"

// leeway is how far the clocks of two servers may differ. It is also how long a
// bound object that is being deleted keeps its tokens valid.
const leeway = time.Minute

// Keys are the keys of a cluster's tokens: one signs, any verifies.
type Keys struct {
	signing *ecdsa.PrivateKey
	// all are the public keys in order; byID finds them by the token's kid.
	all  []publicKey
	byID map[string]*ecdsa.PublicKey
}

type publicKey struct {
	id  string
	key *ecdsa.PublicKey
}

// NewKeys returns keys that sign with one key and also accept what former keys
// have signed.
func NewKeys(signing *ecdsa.PrivateKey, former ...*ecdsa.PublicKey) (*Keys, error) {
	k := &Keys{signing: signing, byID: map[string]*ecdsa.PublicKey{}}
	for _, key := range append([]*ecdsa.PublicKey{&signing.PublicKey}, former...) {
		if key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("service account key is on curve %s: only P-256 (ES256) is used", key.Params().Name)
		}
		id, err := keyID(key)
		if err != nil {
			return nil, err
		}
		k.all = append(k.all, publicKey{id: id, key: key})
		k.byID[id] = key
	}
	return k, nil
}

// keyID is the SHA-256 of a public key, as upstream derives it, so that tokens
// survive a move between the two.
func keyID(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("identify service account key: %w", err)
	}
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:]), nil
}

// claims is the content of a token.
type claims struct {
	jwt.RegisteredClaims
	Kubernetes kubernetesClaims `json:"kubernetes.io,omitzero"`
}

type kubernetesClaims struct {
	Namespace      string           `json:"namespace,omitempty"`
	Node           *reference       `json:"node,omitempty"`
	Pod            *reference       `json:"pod,omitempty"`
	Secret         *reference       `json:"secret,omitempty"`
	ServiceAccount reference        `json:"serviceaccount,omitzero"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

// reference names one object through time: another of the same name has
// another UID.
type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// sign returns the token that says c.
func (k *Keys) sign(c jwt.Claims) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, c)
	// The type is optional (RFC 7519 section 5.1), and upstream has none.
	delete(token.Header, "typ")
	token.Header["kid"] = k.all[0].id
	signed, err := token.SignedString(k.signing)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

var (
	errMalformed  = errors.New("not a token")
	errUnknownKey = errors.New("invalid signature, no keys found")
)

// verify reads what a token says if one of the keys has signed it. Times and
// audiences are not looked at.
func (k *Keys) verify(token string, into jwt.Claims) error {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithoutClaimsValidation())
	_, err := parser.ParseWithClaims(token, into, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		if key, ok := k.byID[id]; ok {
			return key, nil
		}
		// A token without a key ID may be signed by any of them.
		if id != "" {
			return nil, errUnknownKey
		}
		var set jwt.VerificationKeySet
		for _, candidate := range k.all {
			set.Keys = append(set.Keys, candidate.key)
		}
		return set, nil
	})
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return errMalformed
	case errors.Is(err, errUnknownKey):
		return errUnknownKey
	case err != nil:
		return fmt.Errorf("invalid service account token: %w", err)
	}
	return nil
}

// checkTimes returns an error unless a token is valid at the given time.
func (c *claims) checkTimes(now time.Time) error {
	switch {
	case c.ExpiresAt == nil || now.Add(-leeway).After(c.ExpiresAt.Time):
		return errors.New("service account token has expired")
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time):
		return errors.New("service account token is not valid yet")
	case c.IssuedAt != nil && now.Add(leeway).Before(c.IssuedAt.Time):
		return errors.New("service account token is issued in the future")
	default:
		return nil
	}
}
