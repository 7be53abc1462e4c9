// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates holds the plugins of certificates.k8s.io:
//
//   - CertificateApproval and CertificateSigning admit a user's answer to a
//     CertificateSigningRequest only if the user may approve, or sign, for its
//     signer;
//   - CertificateSubjectRestriction refuses requests for client certificates of
//     the group system:masters;
//   - ClusterTrustBundleAttest admits writes of a signer's ClusterTrustBundles
//     only from users who may attest for the signer.
package certificates

import (
	"bytes"
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kindred-project/kindred/internal/auth/signers"
)

// Names of the plugins Approval and Signing in the API server's configuration.
const (
	ApprovalName = "CertificateApproval"
	SigningName  = "CertificateSigning"
)

type request = certificatesv1.CertificateSigningRequest

// Signer is the plugin CertificateApproval or CertificateSigning. Each guards one
// subresource of CertificateSigningRequests.
type Signer struct {
	*admission.Handler
	name, subresource string
	// verb is what the user must be allowed to do for the signer.
	verb string
	// isGuarded reports whether an update requires permission for the verb.
	isGuarded  func(obj, old *request) bool
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface            = &Signer{}
	_ initializer.WantsUnconditionalAuthorizer = &Signer{}
)

// NewApproval returns the plugin CertificateApproval. It guards all updates of
// the subresource approval.
func NewApproval() *Signer {
	return newSigner(ApprovalName, "approval", "approve", func(_, _ *request) bool { return true })
}

// NewSigning returns the plugin CertificateSigning. It guards updates of the
// certificate and the conditions; metadata may be changed through the status
// without permission to sign.
func NewSigning() *Signer {
	return newSigner(SigningName, "status", "sign", func(obj, old *request) bool {
		return !bytes.Equal(obj.Status.Certificate, old.Status.Certificate) || !equality.Semantic.DeepEqual(obj.Status.Conditions, old.Status.Conditions)
	})
}

func newSigner(name, subresource, verb string, isGuarded func(obj, old *request) bool) *Signer {
	return &Signer{Handler: admission.NewHandler(admission.Update), name: name, subresource: subresource, verb: verb, isGuarded: isGuarded}
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Signer) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Signer) ValidateInitialization() error {
	if p.authorizer == nil {
		return fmt.Errorf("%s needs an authorizer", p.name)
	}
	return nil
}

// Validate implements admission.ValidationInterface. The signer is taken from the stored request;
// the request body is not trusted.
func (p *Signer) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") || a.GetSubresource() != p.subresource {
		return nil
	}
	old, ok := a.GetOldObject().(*request)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
	}
	obj, ok := a.GetObject().(*request)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	if !p.isGuarded(obj, old) {
		return nil
	}
	signer := old.Spec.SignerName
	if !signers.Allowed(ctx, p.authorizer, a.GetUserInfo(), p.verb, signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to %s requests with signerName %q", p.verb, signer))
	}
	return nil
}
