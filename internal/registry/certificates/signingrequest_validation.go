// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

// legacySigner stood for "some signer" before signers had names.
const legacySigner = "kubernetes.io/legacy-unknown"

var (
	specPath        = field.NewPath("spec")
	conditionsPath  = field.NewPath("status", "conditions")
	certificatePath = field.NewPath("status", "certificate")

	usages = sets.New(
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
		certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly,
		certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
		certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection,
		certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC)

	// final are the conditions that, once there, are true and stay.
	final = []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}
)

// validateRequest checks a new request, whose status is empty.
func validateRequest(_ context.Context, r *csr) field.ErrorList {
	var errs field.ErrorList
	if err := checkRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, validateUsages(r.Spec.Usages, specPath.Child("usages"))...)
	signer := specPath.Child("signerName")
	if r.Spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(signer, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, podspec.ValidateSignerName(signer, r.Spec.SignerName)...)
	}
	if seconds := r.Spec.ExpirationSeconds; seconds != nil && *seconds < 600 {
		errs = append(errs, field.Invalid(specPath.Child("expirationSeconds"), *seconds, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// checkRequest wants a PKCS #10 request in PEM, signed with its own key.
func checkRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return parsed.CheckSignature()
}

func validateUsages(wanted []certificatesv1.KeyUsage, path *field.Path) field.ErrorList {
	if len(wanted) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i, usage := range wanted {
		if !usages.Has(usage) {
			errs = append(errs, field.NotSupported(path.Index(i), usage, sets.List(usages)))
		}
	}
	seen := sets.New[certificatesv1.KeyUsage]()
	for i, usage := range wanted {
		if seen.Has(usage) {
			errs = append(errs, field.Duplicate(path.Index(i), usage))
		}
		seen.Insert(usage)
	}
	return errs
}

// csrUpdate is a change of a request's status, by an approver or a signer. The
// spec has been put back already, so that it need not be looked at.
type csrUpdate struct {
	approves, signs bool
}

func (u csrUpdate) validate(_ context.Context, r, old *csr) field.ErrorList {
	errs := validateConditions(r.Status.Conditions)
	errs = append(errs, u.certificate(r.Status.Certificate, old.Status.Certificate)...)
	for _, t := range final {
		if len(ofType(r.Status.Conditions, t)) < len(ofType(old.Status.Conditions, t)) {
			errs = append(errs, field.Forbidden(conditionsPath, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	if u.approves {
		return errs
	}
	errs = append(errs, sameConditions(r, old, certificatesv1.CertificateApproved)...)
	return append(errs, sameConditions(r, old, certificatesv1.CertificateDenied)...)
}

// sameConditions is for those who are no approvers.
func sameConditions(r, old *csr, t certificatesv1.RequestConditionType) field.ErrorList {
	now, before := ofType(r.Status.Conditions, t), ofType(old.Status.Conditions, t)
	switch {
	case len(now) > len(before):
		return field.ErrorList{field.Forbidden(conditionsPath, fmt.Sprintf("updates may not add a condition of type %q", t))}
	case len(now) == len(before) && !equality.Semantic.DeepEqual(now, before):
		return field.ErrorList{field.Forbidden(conditionsPath, fmt.Sprintf("updates may not modify a condition of type %q\n%v", t, diff.Diff(before, now)))}
	}
	return nil
}

func validateConditions(conditions []condition) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, c := range conditions {
		path := conditionsPath.Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(path.Child("type"), ""))
		}
		errs = append(errs, validateConditionStatus(c, path.Child("status"))...)
		if contradicts(c.Type, seen) {
			errs = append(errs, field.Invalid(conditionsPath, c.Type, "Approved and Denied conditions are mutually exclusive").
				WithOrigin("zeroOrOneOf").MarkCoveredByDeclarative())
		}
		if seen.Has(c.Type) {
			errs = append(errs, field.Duplicate(path.Child("type"), c.Type))
		}
		seen.Insert(c.Type)
	}
	return errs
}

func contradicts(t certificatesv1.RequestConditionType, seen sets.Set[certificatesv1.RequestConditionType]) bool {
	return t == certificatesv1.CertificateApproved && seen.Has(certificatesv1.CertificateDenied) ||
		t == certificatesv1.CertificateDenied && seen.Has(certificatesv1.CertificateApproved)
}

func validateConditionStatus(c condition, path *field.Path) field.ErrorList {
	allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
	if slices.Contains(final, c.Type) {
		allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
	}
	switch {
	case c.Status == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(allowed, c.Status):
		return field.ErrorList{field.NotSupported(path, c.Status, allowed)}
	}
	return nil
}

// certificate lets a signer answer, once.
func (u csrUpdate) certificate(now, before []byte) field.ErrorList {
	if bytes.Equal(now, before) {
		return nil
	}
	var errs field.ErrorList
	if err := checkCertificates(now); err != nil {
		errs = append(errs, field.Invalid(certificatePath, "<certificate data>", err.Error()))
	}
	switch {
	case !u.signs:
		errs = append(errs, field.Forbidden(certificatePath, "updates may not set certificate content"))
	case len(before) > 0:
		errs = append(errs, field.Forbidden(certificatePath, "updates may not modify existing certificate content"))
	}
	return errs
}

// checkCertificates wants certificates in PEM and nothing else; no data at all is
// no certificate yet.
func checkCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	for found := false; ; found = true {
		block, rest := pem.Decode(data)
		switch {
		case block == nil && found:
			return nil
		case block == nil:
			return errors.New("must contain at least one CERTIFICATE PEM block")
		case block.Type != "CERTIFICATE":
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		case len(block.Headers) > 0:
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		data = rest
	}
}
