// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Limits of a request. Kubernetes' own signers issue certificates for at most one day, others for
// at most 91 days.
const (
	maxStubBytes          = 10 * 1024
	maxUIDBytes           = 128
	minLifetime           = 60 * 60
	maxLifetime           = 91 * 24 * 60 * 60
	maxKubernetesLifetime = 24 * 60 * 60
)

var stubPath = specPath.Child("stubPKCS10Request")

func validatePodRequest(_ context.Context, c *check.Checker, r *podRequest) {
	s := &r.Spec
	c.SignerName(specPath.Child("signerName"), s.SignerName)
	validateUserAnnotations(c, s.UnverifiedUserAnnotations, specPath.Child("unverifiedUserAnnotations"))
	for _, party := range []struct {
		kind, name string
		uid        types.UID
	}{{"pod", s.PodName, s.PodUID}, {"serviceAccount", s.ServiceAccountName, s.ServiceAccountUID}, {"node", string(s.NodeName), s.NodeUID}} {
		c.DNSSubdomain(specPath.Child(party.kind+"Name"), party.name)
		validateUID(c, party.uid, specPath.Child(party.kind+"UID"))
	}
	validateLifetime(c, s.MaxExpirationSeconds, s.SignerName, specPath.Child("maxExpirationSeconds"))
	switch {
	case s.MaxExpirationSeconds == nil: // already reported, by validateLifetime
	case len(s.StubPKCS10Request) == 0:
		c.Invalid(specPath, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")
	default:
		validateStub(c, s.StubPKCS10Request)
	}
}

func validateUserAnnotations(c *check.Checker, annotations map[string]string, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		c.Add(utilvalidation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		c.TooLong(path, apivalidation.TotalAnnotationSizeLimitB)
	}
}

func validateUID(c *check.Checker, uid types.UID, path *field.Path) {
	switch {
	case uid == "":
		c.Invalid(path, uid, "must not be empty")
	case len(uid) > maxUIDBytes:
		c.Add(field.TooLong(path, uid, maxUIDBytes))
	}
}

func validateLifetime(c *check.Checker, seconds *int32, signer string, path *field.Path) {
	if seconds == nil {
		c.Required(path, "must be set")
		return
	}
	longest := int32(maxLifetime)
	if check.IsKubernetesSigner(signer) {
		longest = maxKubernetesLifetime
	}
	if *seconds >= minLifetime && *seconds <= longest {
		return
	}
	c.Invalid(path, *seconds, fmt.Sprintf("must be in the range [%d, %d]", minLifetime, longest))
}

// validateStub requires a request that only proves possession of the key.
func validateStub(c *check.Checker, data []byte) {
	refuse := func(value any, detail string) { c.Invalid(stubPath, value, detail) }
	if len(data) > maxStubBytes {
		c.Add(field.TooLong(stubPath, data, maxStubBytes))
		return
	}
	stub, err := x509.ParseCertificateRequest(data)
	if err != nil {
		refuse(field.OmitValueType{}, "must be a valid PKCS#10 CSR")
		return
	}
	switch key := stub.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			refuse("curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
			return
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			refuse(fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
			return
		}
	default:
		refuse(field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
		return
	}
	if stub.CheckSignature() != nil {
		refuse(field.OmitValueType{}, "invalid signature")
	}
}
