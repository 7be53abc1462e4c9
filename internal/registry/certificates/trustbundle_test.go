// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func bundle(name, signer, roots string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: roots},
	}
}

func TestClusterTrustBundle(t *testing.T) {
	root := newCertificate(t, newKey(t, elliptic.P256()), func(c *x509.Certificate) { c.IsCA = true })
	leaf := newCertificate(t, newKey(t, elliptic.P256()))
	roots := encode(root)
	const omitted = `spec.trustBundle: Invalid value: "<value omitted>": `
	for name, test := range map[string]struct {
		bundle *certificatesv1.ClusterTrustBundle
		want   []string
	}{
		"anybody's":          {bundle("corp", "", roots), nil},
		"bundle of a signer": {bundle("example.com:mesh:live", "example.com/mesh", roots), nil},
		"a colon":            {bundle("a:b", "", roots), []string{`metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" in its name`}},
		"another prefix":     {bundle("live", "example.com/mesh", roots), []string{`metadata.name: Invalid value: "live": ClusterTrustBundle for signerName example.com/mesh must be named with prefix example.com:mesh:`}},
		"nothing":            {bundle("a", "", ""), []string{omitted + "at least one trust anchor must be provided"}},
		"twice":              {bundle("a", "", roots+roots), []string{omitted + "duplicate trust anchor (indices [0 1])"}},
		"too large":          {bundle("a", "", strings.Repeat("a", maxBundleBytes+1)), []string{"spec.trustBundle: Too long: may not be more than 1048576 bytes"}},
		"other PEM blocks": {bundle("a", "", roots+roots+encode(&pem.Block{Type: "PUBLIC KEY"}, &pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}},
			&pem.Block{Type: "CERTIFICATE", Bytes: []byte("a")}, leaf)), []string{
			omitted + "entry 2 has bad block type: PUBLIC KEY", omitted + "entry 3 has PEM block headers",
			omitted + "entry 4 does not parse as X.509", omitted + "entry 5 does not have the CA bit set"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), ClusterTrustBundle.Validate, test.bundle), test.want...)
		})
	}
	old := bundle("a", "", "stored long ago")
	compare(t, checktest.UpdateErrors(t.Context(), ClusterTrustBundle.ValidateUpdate, bundle("a", "", "stored long ago"), old))
	compare(t, checktest.UpdateErrors(t.Context(), ClusterTrustBundle.ValidateUpdate, bundle("a", "", ""), old), omitted+"at least one trust anchor must be provided")
	compare(t, checktest.UpdateErrors(t.Context(), ClusterTrustBundle.ValidateUpdate, bundle("example.com:mesh:a", "example.com/mesh", roots), bundle("example.com:mesh:a", "example.org/mesh", roots)),
		`spec.signerName: Invalid value: "example.com/mesh": field is immutable`)
}
