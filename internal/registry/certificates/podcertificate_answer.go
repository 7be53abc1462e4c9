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

// This file holds the rules for a signer's answer to a PodCertificateRequest.

const (
	maxChainBytes = 100 * 1024
	// clockSkew is the maximum difference between the clocks of the signer and the API server. A
	// refresh must begin at least earliestRefresh after the start and before the end of a
	// certificate's validity.
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

// validateAnswer allows a pending request to be issued, denied or failed.
func validateAnswer(c *check.Checker, r, old *podRequest, now time.Time) {
	if !c.Passes(func() { validateAnswerConditions(c, r.Status.Conditions) }) {
		return
	}
	switch {
	case hasState(old, issued, denied, failed):
		sameStatus(c, r.Status, old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
		return
	case hasState(r, denied, failed):
		bare := certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}
		sameStatus(c, r.Status, bare, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
		return
	case hasState(r, issued):
		validateIssued(c, r, old, now)
		return
	}
	sameStatus(c, r.Status, old.Status, "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"")
}

func hasState(r *podRequest, states ...string) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && slices.Contains(states, c.Type)
	})
}

func sameStatus(c *check.Checker, status, want certificatesv1.PodCertificateRequestStatus, detail string) {
	if !equality.Semantic.DeepEqual(status, want) {
		c.Invalid(statusPath, field.OmitValueType{}, detail)
	}
}

func validateAnswerConditions(c *check.Checker, conditions []metav1.Condition) {
	known := 0
	for i, condition := range conditions {
		// Like upstream's, these paths have a dot before the index.
		path := statusPath.Child("conditions", fmt.Sprintf("[%d]", i))
		if !c.Passes(func() { check.OneOf(c, path.Child("type"), condition.Type, issued, denied, failed) }) {
			continue
		}
		if known++; known > 1 {
			c.Invalid(path.Child("type"), condition.Type, "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"")
		}
		check.OneOf(c, path.Child("status"), condition.Status, metav1.ConditionTrue)
	}
	c.Add(metav1validation.ValidateConditions(conditions, statusPath.Child("conditions"))...)
}

// validateIssued checks the certificate of a request. It stops at the first error that makes later
// checks meaningless.
func validateIssued(c *check.Checker, r, old *podRequest, now time.Time) {
	chain := r.Status.CertificateChain
	if len(chain) > maxChainBytes {
		c.TooLong(chainPath, maxChainBytes)
		return
	}
	refuse := func(detail string) { c.Invalid(chainPath, chain, detail) }
	block, rest := pem.Decode([]byte(chain))
	switch {
	case block == nil:
		refuse("issued certificate chain must contain at least one certificate")
		return
	case block.Type != "CERTIFICATE":
		refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		return
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		refuse("leaf certificate does not parse as valid X.509")
		return
	}
	validNames := c.Passes(func() { validateNames(c, leaf) })
	stub, err := x509.ParseCertificateRequest(old.Spec.StubPKCS10Request)
	if err != nil {
		c.Invalid(stubPath, field.OmitValueType{}, "must be a valid PKCS#10 CSR")
		return
	}
	if key, ok := stub.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		refuse("leaf certificate was not issued to the requested public key")
		return
	}
	validTimes := c.Passes(func() { validateTimesSet(c, &r.Status) }) && validNames &&
		c.Passes(func() { validateTimes(c, r, leaf, now) })
	if problem := chainProblem(rest); validTimes && problem != "" {
		refuse(problem)
	}
}

func validateNames(c *check.Checker, leaf *x509.Certificate) {
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
}

func validateTimesSet(c *check.Checker, status *certificatesv1.PodCertificateRequestStatus) {
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
}

// validateTimes compares the times in the status with the certificate and with the request.
func validateTimes(c *check.Checker, r *podRequest, leaf *x509.Certificate, now time.Time) {
	notBefore, notAfter, refresh := r.Status.NotBefore.Time, r.Status.NotAfter.Time, r.Status.BeginRefreshAt.Time
	longest, life := *r.Spec.MaxExpirationSeconds, leaf.NotAfter.Sub(leaf.NotBefore)
	switch {
	case !notBefore.Equal(leaf.NotBefore):
		c.Invalid(notBeforePath, notBefore, "must be set to the NotBefore time encoded in the leaf certificate")
	case notBefore.Sub(now).Abs() >= clockSkew:
		c.Invalid(notBeforePath, notBefore, "must be set to within 5 minutes of kube-apiserver's current time")
	case !notAfter.Equal(leaf.NotAfter):
		c.Invalid(notAfterPath, notAfter, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < time.Hour:
		c.Invalid(chainPath, life, "leaf certificate lifetime must be >= 1 hour")
	case life > time.Duration(longest)*time.Second:
		c.Invalid(chainPath, life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", longest))
	case refresh.Before(notBefore.Add(earliestRefresh)):
		c.Invalid(refreshPath, refresh, "must be at least 10 minutes after status.notBefore")
	case refresh.After(notAfter.Add(-earliestRefresh)):
		c.Invalid(refreshPath, refresh, "must be at least 10 minutes before status.notAfter")
	}
}

// chainProblem checks the certificates after the leaf. It cannot check whether they lead to a
// trusted root.
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
