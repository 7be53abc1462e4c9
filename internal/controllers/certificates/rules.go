// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
)

// rules holds what each signer permits (certificates API reference, "Kubernetes signers"). Other
// signers are not handled.
var rules = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeAPIServerClientSignerName:        checkClient,
	certificatesv1.KubeAPIServerClientKubeletSignerName: checkNodeClient,
	certificatesv1.KubeletServingSignerName:             checkNodeServing,
	// Requests from before the field signerName existed: everything is permitted.
	certificatesv1beta1.LegacyUnknownSignerName: func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error { return nil },
}

func checkClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

func checkNodeClient(wanted *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !isNodeOrganization(wanted):
		return errNotOfNodes
	case len(wanted.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(wanted.EmailAddresses) > 0:
		return errEmail
	case len(wanted.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(wanted.URIs) > 0:
		return errURI
	case !hasNodeName(wanted):
		return errNotANode
	default:
		return checkUsages(usages, certificatesv1.UsageClientAuth)
	}
}

func checkNodeServing(wanted *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if !isNodeOrganization(wanted) {
		return errNotOfNodes
	}
	switch {
	case len(wanted.DNSNames) == 0 && len(wanted.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(wanted.EmailAddresses) > 0:
		return errEmail
	case len(wanted.URIs) > 0:
		return errURI
	}
	if err := checkUsages(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	if !hasNodeName(wanted) {
		return errNotANode
	}
	return nil
}

// nodePrefix is the prefix of the user name of a node.
const nodePrefix = "system:node:"

var (
	errNotOfNodes = errors.New("subject organization is not system:nodes")
	//lint:ignore ST1005 the text of a condition, which is upstream's
	errNotANode = errors.New("subject common name does not begin with system:node:")
	//lint:ignore ST1005 the text of a condition, which is upstream's
	errEmail = errors.New("Email subjectAltNames are not allowed")
	errURI   = errors.New("URI subjectAltNames are not allowed")
)

func isNodeOrganization(wanted *x509.CertificateRequest) bool {
	return slices.Equal(wanted.Subject.Organization, []string{user.NodesGroup})
}

func hasNodeName(wanted *x509.CertificateRequest) bool {
	return strings.HasPrefix(wanted.Subject.CommonName, nodePrefix)
}

// checkUsages requires exactly the usages of a node's certificate. Key encipherment is optional,
// since only RSA keys support it.
func checkUsages(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	allowed := sets.New(certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose)
	got := sets.New(usages...).Insert(certificatesv1.UsageKeyEncipherment)
	if !got.Equal(allowed) {
		return fmt.Errorf("usages did not match %v", sets.List(allowed))
	}
	return nil
}
