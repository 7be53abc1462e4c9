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

	"github.com/kindred-project/kindred/internal/registry/check"
)

// legacySigner is the signer of requests from before signers had names.
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

	// final are the conditions that can only be true, and cannot be removed.
	final = []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}
)

// validateRequest checks a new request, whose status is empty.
func validateRequest(_ context.Context, c *check.Checker, r *csr) {
	if err := checkRequest(r.Spec.Request); err != nil {
		c.Invalid(specPath.Child("request"), r.Spec.Request, err.Error())
	}
	validateUsages(c, r.Spec.Usages, specPath.Child("usages"))
	signer := specPath.Child("signerName")
	if r.Spec.SignerName == legacySigner {
		c.Invalid(signer, r.Spec.SignerName, "the legacy signerName is not allowed via this API version")
	} else {
		c.SignerName(signer, r.Spec.SignerName)
	}
	if seconds := r.Spec.ExpirationSeconds; seconds != nil && *seconds < 600 {
		c.Invalid(specPath.Child("expirationSeconds"), *seconds, "may not specify a duration less than 600 seconds (10 minutes)")
	}
}

// checkRequest requires a PKCS #10 request in PEM, signed with its own key.
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

func validateUsages(c *check.Checker, wanted []certificatesv1.KeyUsage, path *field.Path) {
	if len(wanted) == 0 {
		c.Required(path, "")
		return
	}
	for i, usage := range wanted {
		if !usages.Has(usage) {
			c.Add(field.NotSupported(path.Index(i), usage, sets.List(usages)))
		}
	}
	seen := sets.New[certificatesv1.KeyUsage]()
	for i, usage := range wanted {
		check.Unique(c, path.Index(i), seen, usage)
	}
}

// csrUpdate checks a change of a request's status by an approver or a signer. The strategy has
// restored the spec.
type csrUpdate struct {
	approves, signs bool
}

func (u csrUpdate) validate(_ context.Context, c *check.Checker, r, old *csr) {
	validateConditions(c, r.Status.Conditions)
	u.certificate(c, r.Status.Certificate, old.Status.Certificate)
	for _, t := range final {
		if len(ofType(r.Status.Conditions, t)) < len(ofType(old.Status.Conditions, t)) {
			c.Forbidden(conditionsPath, fmt.Sprintf("updates may not remove a condition of type %q", t))
		}
	}
	if u.approves {
		return
	}
	sameConditions(c, r, old, certificatesv1.CertificateApproved)
	sameConditions(c, r, old, certificatesv1.CertificateDenied)
}

// sameConditions forbids changes of conditions by a client that is not an approver.
func sameConditions(c *check.Checker, r, old *csr, t certificatesv1.RequestConditionType) {
	now, before := ofType(r.Status.Conditions, t), ofType(old.Status.Conditions, t)
	switch {
	case len(now) > len(before):
		c.Forbidden(conditionsPath, fmt.Sprintf("updates may not add a condition of type %q", t))
	case len(now) == len(before) && !equality.Semantic.DeepEqual(now, before):
		c.Forbidden(conditionsPath, fmt.Sprintf("updates may not modify a condition of type %q\n%v", t, diff.Diff(before, now)))
	}
}

func validateConditions(c *check.Checker, conditions []condition) {
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, condition := range conditions {
		path := conditionsPath.Index(i)
		if condition.Type == "" {
			c.Required(path.Child("type"), "")
		}
		validateConditionStatus(c, condition, path.Child("status"))
		if contradicts(condition.Type, seen) {
			c.Declared().Add(field.Invalid(conditionsPath, condition.Type, "Approved and Denied conditions are mutually exclusive").
				WithOrigin("zeroOrOneOf"))
		}
		check.Unique(c, path.Child("type"), seen, condition.Type)
	}
}

func contradicts(t certificatesv1.RequestConditionType, seen sets.Set[certificatesv1.RequestConditionType]) bool {
	return t == certificatesv1.CertificateApproved && seen.Has(certificatesv1.CertificateDenied) ||
		t == certificatesv1.CertificateDenied && seen.Has(certificatesv1.CertificateApproved)
}

func validateConditionStatus(c *check.Checker, condition condition, path *field.Path) {
	allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
	if slices.Contains(final, condition.Type) {
		allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
	}
	check.RequiredOneOf(c, path, condition.Status, allowed...)
}

// certificate allows only a signer to set the certificate, and only once.
func (u csrUpdate) certificate(c *check.Checker, now, before []byte) {
	if bytes.Equal(now, before) {
		return
	}
	if err := checkCertificates(now); err != nil {
		c.Invalid(certificatePath, "<certificate data>", err.Error())
	}
	switch {
	case !u.signs:
		c.Forbidden(certificatePath, "updates may not set certificate content")
	case len(before) > 0:
		c.Forbidden(certificatePath, "updates may not modify existing certificate content")
	}
}

// checkCertificates requires certificates in PEM and nothing else. Empty data means that no
// certificate was issued yet.
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
