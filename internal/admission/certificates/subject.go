// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

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

// SubjectName is the name of the plugin Subject in the API server's configuration.
const SubjectName = "CertificateSubjectRestriction"

// Subject refuses requests for client certificates of the group system:masters. The
// group may do anything, whatever the other authorizers decide, and Kubernetes does not
// check whether a certificate was revoked.
type Subject struct{ *admission.Handler }

var _ admission.ValidationInterface = &Subject{}

// NewSubject returns the plugin.
func NewSubject() *Subject { return &Subject{admission.NewHandler(admission.Create)} }

// Validate implements admission.ValidationInterface.
func (*Subject) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("certificatesigningrequests") || a.GetSubresource() != "" {
		return nil
	}
	obj, ok := a.GetObject().(*request)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.GetObject()))
	}
	if obj.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	requested, err := parse(obj.Spec.Request)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(requested.Subject.Organization, user.SystemPrivilegedGroup) {
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
