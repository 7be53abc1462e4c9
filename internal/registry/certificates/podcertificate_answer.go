// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// This file is what a signer may answer to a PodCertificateRequest.

const (
	largestChain = 100 * 1024
	// clockSkew is how far a signer's clock may be from ours, earliestRefresh how
	// long before and after a certificate's life its refresh must begin.
	clockSkew       = 5 * time.Minute
	earliestRefresh = 10 * time.Minute
)

var (
	statusPath    = field.NewPath("status")
	chainPath     = statusPath.Child("certificateChain")
	notBeforePath = statusPath.Child("notBefore")
	notAfterPath  = statusPath.Child("notAfter")
	refreshPath   = statusPath.Child("beginRefreshAt")
)

// validateAnswer lets a pending request be issued, denied or failed; all else stays.
func validateAnswer(r, old *podRequest, now time.Time) field.ErrorList {
	if errs := validateAnswerConditions(r.Status.Conditions); len(errs) > 0 {
		return errs
	}
	switch {
	case is(old, issued, denied, failed):
		return sameStatus(r.Status, old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case is(r, denied, failed):
		bare := certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}
		return sameStatus(r.Status, bare, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	case is(r, issued):
		return validateIssued(r, old, now)
	}
	return sameStatus(r.Status, old.Status, "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"")
}

func is(r *podRequest, states ...string) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && slices.Contains(states, c.Type)
	})
}

func sameStatus(status, want certificatesv1.PodCertificateRequestStatus, detail string) field.ErrorList {
	if equality.Semantic.DeepEqual(status, want) {
		return nil
	}
	return field.ErrorList{field.Invalid(statusPath, field.OmitValueType{}, detail)}
}

func validateAnswerConditions(conditions []metav1.Condition) field.ErrorList {
	c := &check.Checker{}
	known := 0
	for i, condition := range conditions {
		// Clients know these paths with a dot before the index.
		path := statusPath.Child("conditions", fmt.Sprintf("[%d]", i))
		switch condition.Type {
		case issued, denied, failed:
		default:
			c.Add(field.NotSupported(path.Child("type"), condition.Type, []string{issued, denied, failed}))
			continue
		}
		if known++; known > 1 {
			c.Invalid(path.Child("type"), condition.Type, "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"")
		}
		if condition.Status != metav1.ConditionTrue {
			c.Add(field.NotSupported(path.Child("status"), condition.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	c.Add(metav1validation.ValidateConditions(conditions, statusPath.Child("conditions"))...)
	return c.Errors()
}

// validateIssued reports the first thing that is wrong with a certificate: what
// follows would not make sense.
func validateIssued(r, old *podRequest, now time.Time) field.ErrorList {
	chain := r.Status.CertificateChain
	if len(chain) > largestChain {
		return field.ErrorList{field.TooLong(chainPath, chain, largestChain)}
	}
	refuse := func(detail string) field.ErrorList { return field.ErrorList{field.Invalid(chainPath, chain, detail)} }
	block, rest := pem.Decode([]byte(chain))
	switch {
	case block == nil:
		return refuse("issued certificate chain must contain at least one certificate")
	case block.Type != "CERTIFICATE":
		return refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return refuse("leaf certificate does not parse as valid X.509")
	}
	errs := validateNames(leaf)
	stub, err := x509.ParseCertificateRequest(old.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, field.Invalid(stubPath, field.OmitValueType{}, "must be a valid PKCS#10 CSR"))
	}
	if key, ok := stub.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return append(errs, refuse("leaf certificate was not issued to the requested public key")...)
	}
	if errs = append(errs, validateTimesSet(&r.Status)...); len(errs) > 0 {
		return errs
	}
	if errs = validateTimes(r, leaf, now); len(errs) > 0 {
		return errs
	}
	if problem := chainProblem(rest); problem != "" {
		return refuse(problem)
	}
	return nil
}

func validateNames(leaf *x509.Certificate) field.ErrorList {
	c := &check.Checker{}
	for _, name := range leaf.DNSNames {
		if name == "" {
			c.Invalid(chainPath, name, "leaf certificate should not contain empty DNSName")
		}
		if strings.Contains(name, "..") {
			c.Invalid(chainPath, name, "leaf certificate's DNSName should not contain '..'")
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			c.Invalid(chainPath, name, "leaf certificate's DNSName should not start or end with '.'")
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			c.Invalid(chainPath, address, "leaf certificate should not contain invalid EmailAddress")
		}
	}
	return c.Errors()
}

func validateTimesSet(status *certificatesv1.PodCertificateRequestStatus) field.ErrorList {
	c := &check.Checker{}
	const consistent = "must be present and consistent with the issued certificate"
	if status.NotBefore == nil {
		c.Required(notBeforePath, consistent)
	}
	if status.NotAfter == nil {
		c.Required(notAfterPath, consistent)
	}
	if status.BeginRefreshAt == nil {
		c.Required(refreshPath, "must be present and in the range [notbefore+10min, notafter-10min]")
	}
	return c.Errors()
}

// validateTimes compares what the status says with the certificate and with what
// was asked for.
func validateTimes(r *podRequest, leaf *x509.Certificate, now time.Time) field.ErrorList {
	notBefore, notAfter, refresh := r.Status.NotBefore.Time, r.Status.NotAfter.Time, r.Status.BeginRefreshAt.Time
	longest, life := *r.Spec.MaxExpirationSeconds, leaf.NotAfter.Sub(leaf.NotBefore)
	refuse := func(path *field.Path, value any, detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, value, detail)}
	}
	switch {
	case !notBefore.Equal(leaf.NotBefore):
		return refuse(notBeforePath, notBefore, "must be set to the NotBefore time encoded in the leaf certificate")
	case notBefore.Sub(now).Abs() >= clockSkew:
		return refuse(notBeforePath, notBefore, "must be set to within 5 minutes of kube-apiserver's current time")
	case !notAfter.Equal(leaf.NotAfter):
		return refuse(notAfterPath, notAfter, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < time.Hour:
		return refuse(chainPath, life, "leaf certificate lifetime must be >= 1 hour")
	case life > time.Duration(longest)*time.Second:
		return refuse(chainPath, life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", longest))
	case refresh.Before(notBefore.Add(earliestRefresh)):
		return refuse(refreshPath, refresh, "must be at least 10 minutes after status.notBefore")
	case refresh.After(notAfter.Add(-earliestRefresh)):
		return refuse(refreshPath, refresh, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}

// chainProblem looks at what follows the leaf. Whether it leads to a root that
// somebody trusts cannot be known here.
func chainProblem(rest []byte) string {
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return ""
		}
		if block.Type != "CERTIFICATE" {
			return "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "intermediate certificate does not parse as valid X.509"
		}
	}
}
