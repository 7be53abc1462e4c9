// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificateapproval lets only those approve or deny a
// CertificateSigningRequest who may approve for its signer.
package certificateapproval

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kindred-project/kindred/internal/auth/signers"
)

// Name is the plugin's name in the API server's configuration.
const Name = "CertificateApproval"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface            = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &Plugin{}
)

// New returns the plugin.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Update)} }

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.authorizer == nil {
		return fmt.Errorf("%s needs an authorizer", Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface. The signer is that of the
// stored request, whatever the body says.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") || a.GetSubresource() != "approval" {
		return nil
	}
	stored, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
	}
	signer := stored.Spec.SignerName
	if !signers.Allowed(ctx, p.authorizer, a.GetUserInfo(), "approve", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to approve requests with signerName %q", signer))
	}
	return nil
}
