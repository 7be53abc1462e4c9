// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount issues and verifies the tokens of service accounts.
//
// A token is a JWT, signed with ES256, that names a service account and optionally a pod, Secret or
// node that it is bound to (KEP-1205, KEP-4193). It is valid until it expires, as long as the
// service account and the bound object exist with the same UIDs: deleting a pod revokes its tokens.
//
// Issuer processes TokenRequests, Authenticator is an authenticator.Token, and Discovery lets other
// programs verify tokens by OpenID Connect without a request to the API server for each. All three
// share one Keys value.
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

// DefaultIssuerURL is the issuer of tokens, and the only audience of the API server.
const DefaultIssuerURL = "https://kubernetes.default.svc.cluster.local"

// leeway is how far the clocks of two servers may differ, and how long the tokens of a bound object
// stay valid after its deletion timestamp.
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

// NewKeys returns Keys that sign with one key, and also accept tokens signed by former keys.
func NewKeys(signing *ecdsa.PrivateKey, former ...*ecdsa.PublicKey) (*Keys, error) {
	k := &Keys{signing: signing, byID: map[string]*ecdsa.PublicKey{}}
	for _, key := range append([]*ecdsa.PublicKey{&signing.PublicKey}, former...) {
		if key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("service account key is on curve %s: only P-256 (ES256) is supported", key.Params().Name)
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

// keyID returns the SHA-256 of a public key, as upstream does, so that tokens stay valid if a cluster
// migrates from or to upstream's API server with its keys.
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

// reference names one object. A later object of the same name has another UID.
type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// sign returns a token with the given claims.
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

// verify reads the claims of a token that one of the keys has signed. It does not check times and
// audiences.
func (k *Keys) verify(token string, into jwt.Claims) error {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithoutClaimsValidation())
	_, err := parser.ParseWithClaims(token, into, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		if key, ok := k.byID[id]; ok {
			return key, nil
		}
		// A token without a key ID may be signed by any of the keys.
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
