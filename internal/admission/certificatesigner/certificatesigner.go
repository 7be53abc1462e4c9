// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificatesigner holds those who answer a CertificateSigningRequest to its
// signer: only who may approve for it approves or denies, only who may sign for it writes
// the certificate and the conditions. These are two plugins, one for each subresource.
package certificatesigner

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

// The plugins' names in the API server's configuration.
const (
	ApprovalName = "CertificateApproval"
	SigningName  = "CertificateSigning"
)

type request = certificatesv1.CertificateSigningRequest

// Plugin is the admission plugin for one subresource.
type Plugin struct {
	*admission.Handler
	name, subresource string
	// verb is what one must be allowed to do for the signer.
	verb string
	// answers is whether a write needs that.
	answers    func(now, stored *request) bool
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
)

// NewApproval returns the plugin for approvals and denials. Each write is one.
func NewApproval() *Plugin {
	return newPlugin(ApprovalName, "approval", "approve", func(_, _ *request) bool { return true })
}

// NewSigning returns the plugin for certificates. Metadata may be written through the
// status without a signer's rights.
func NewSigning() *Plugin {
	return newPlugin(SigningName, "status", "sign", func(now, stored *request) bool {
		return !bytes.Equal(now.Status.Certificate, stored.Status.Certificate) || !equality.Semantic.DeepEqual(now.Status.Conditions, stored.Status.Conditions)
	})
}

func newPlugin(name, subresource, verb string, answers func(now, stored *request) bool) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Update), name: name, subresource: subresource, verb: verb, answers: answers}
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil {
		return fmt.Errorf("%s needs an authorizer", p.name)
	}
	return nil
}

// Validate implements admission.ValidationInterface. The signer is that of the
// stored request, whatever the body says.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") || a.GetSubresource() != p.subresource {
		return nil
	}
	stored, ok := a.GetOldObject().(*request)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
	}
	now, ok := a.GetObject().(*request)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	if !p.answers(now, stored) {
		return nil
	}
	signer := stored.Spec.SignerName
	if !signers.Allowed(ctx, p.authorizer, a.GetUserInfo(), p.verb, signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to %s requests with signerName %q", p.verb, signer))
	}
	return nil
}
