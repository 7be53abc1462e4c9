// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificatesigning lets only those write the certificate and conditions
// of a CertificateSigningRequest who may sign for its signer.
package certificatesigning

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

// Name is the plugin's name in the API server's configuration.
const Name = "CertificateSigning"

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

// Validate implements admission.ValidationInterface. Metadata may be written
// through the status without a signer's rights.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") || a.GetSubresource() != "status" {
		return nil
	}
	stored, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetOldObject()))
	}
	request, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	if sameAnswer(request.Status, stored.Status) {
		return nil
	}
	signer := stored.Spec.SignerName
	if !signers.Allowed(ctx, p.authorizer, a.GetUserInfo(), "sign", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to sign requests with signerName %q", signer))
	}
	return nil
}

func sameAnswer(a, b certificatesv1.CertificateSigningRequestStatus) bool {
	return bytes.Equal(a.Certificate, b.Certificate) && equality.Semantic.DeepEqual(a.Conditions, b.Conditions)
}
