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

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Limits of what a request may hold and ask for. Kubernetes' own signers sign for
// a day at most, others for 91.
const (
	largestStub       = 10 * 1024
	longestUID        = 128
	shortestLife      = 60 * 60
	longestLife       = 91 * 24 * 60 * 60
	longestKubernetes = 24 * 60 * 60
)

var stubPath = specPath.Child("stubPKCS10Request")

func validatePodRequest(_ context.Context, r *podRequest) field.ErrorList {
	s := &r.Spec
	errs := podspec.ValidateSignerName(specPath.Child("signerName"), s.SignerName)
	errs = append(errs, validateUserAnnotations(s.UnverifiedUserAnnotations, specPath.Child("unverifiedUserAnnotations"))...)
	for _, party := range []struct {
		kind, name string
		uid        types.UID
	}{{"pod", s.PodName, s.PodUID}, {"serviceAccount", s.ServiceAccountName, s.ServiceAccountUID}, {"node", string(s.NodeName), s.NodeUID}} {
		errs = append(errs, generic.Invalid(specPath.Child(party.kind+"Name"), party.name, apivalidation.NameIsDNSSubdomain(party.name, false))...)
		errs = append(errs, validateUID(party.uid, specPath.Child(party.kind+"UID"))...)
	}
	errs = append(errs, validateLife(s.MaxExpirationSeconds, s.SignerName, specPath.Child("maxExpirationSeconds"))...)
	switch {
	case s.MaxExpirationSeconds == nil:
		return errs
	case len(s.StubPKCS10Request) == 0:
		return append(errs, field.Invalid(specPath, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	return append(errs, validateStub(s.StubPKCS10Request)...)
}

func validateUserAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, utilvalidation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

func validateUID(uid types.UID, path *field.Path) field.ErrorList {
	switch {
	case uid == "":
		return field.ErrorList{field.Invalid(path, uid, "must not be empty")}
	case len(uid) > longestUID:
		return field.ErrorList{field.TooLong(path, uid, longestUID)}
	}
	return nil
}

func validateLife(seconds *int32, signer string, path *field.Path) field.ErrorList {
	if seconds == nil {
		return field.ErrorList{field.Required(path, "must be set")}
	}
	longest := int32(longestLife)
	if isKubernetes(signer) {
		longest = longestKubernetes
	}
	if *seconds >= shortestLife && *seconds <= longest {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *seconds, fmt.Sprintf("must be in the range [%d, %d]", shortestLife, longest))}
}

func isKubernetes(signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// validateStub wants a request whose only purpose is to prove who has the key.
func validateStub(data []byte) field.ErrorList {
	refuse := func(value any, detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(stubPath, value, detail)}
	}
	if len(data) > largestStub {
		return field.ErrorList{field.TooLong(stubPath, data, largestStub)}
	}
	stub, err := x509.ParseCertificateRequest(data)
	if err != nil {
		return refuse(field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	switch key := stub.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return refuse("curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return refuse(fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return refuse(field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if stub.CheckSignature() != nil {
		return refuse(field.OmitValueType{}, "invalid signature")
	}
	return nil
}
