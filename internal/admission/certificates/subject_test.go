// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestSubject(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(groups ...string) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: groups}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	request := func(signer string, body []byte) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: body}}
	}
	const client, resource = "kubernetes.io/kube-apiserver-client", "certificatesigningrequests.certificates.k8s.io"
	for _, test := range []struct {
		name, resource string
		object         runtime.Object
		want           string
	}{
		{"another group", resource, request(client, encoded("developers")), ""},
		{"group system:masters", resource, request(client, encoded("developers", "system:masters")), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		{"group system:masters, another signer", resource, request("example.com/mesh", encoded("system:masters")), ""},
		{"not PEM", resource, request(client, []byte("?")), "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"},
		{"not a request", resource, request(client, []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")), "failed to parse CSR: asn1: structure error: "},
		{"another kind", resource, &certificatesv1.ClusterTrustBundle{}, "expected type CertificateSigningRequest, got: *v1.ClusterTrustBundle"},
		{"a subresource", resource + "/approval", request(client, encoded("system:masters")), ""},
	} {
		r := admissiontest.Request{Operation: admission.Create, Resource: test.resource, Object: test.object}
		err := NewSubject().Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
