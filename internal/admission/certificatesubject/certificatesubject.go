// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificatesubject refuses requests for a client certificate of the
// group system:masters, which no authorizer could ever take back.
package certificatesubject

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Name is the plugin's name in the API server's configuration.
const Name = "CertificateSubjectRestriction"

// Plugin is the admission plugin.
type Plugin struct{ *admission.Handler }

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin { return &Plugin{admission.NewHandler(admission.Create)} }

// Validate implements admission.ValidationInterface.
func (*Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") || a.GetSubresource() != "" {
		return nil
	}
	request, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	if request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	asked, err := parse(request.Spec.Request)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(asked.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName, user.SystemPrivilegedGroup))
	}
	return nil
}

func parse(encoded []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(encoded)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
