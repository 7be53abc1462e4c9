// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
)

func TestTrustBundle(t *testing.T) {
	plugin := NewTrustBundle()
	plugin.SetUnconditionalAuthorizer(admissiontest.Signers{Verb: "attest", Signer: "example.com/*"})
	bundle := func(signer, certificates string, finalizers ...string) *certificatesv1.ClusterTrustBundle {
		b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: certificates}}
		b.Finalizers = finalizers
		return b
	}
	const refused = `user not permitted to attest for signerName "example.org/theirs"`
	labelled := bundle("example.org/theirs", "a")
	labelled.Labels = map[string]string{"a": "b"}
	for _, test := range []struct {
		name     string
		now, old runtime.Object
		want     string
	}{
		{"no signer", bundle("", "a"), nil, ""},
		{"may attest", bundle("example.com/mine", "a"), nil, ""},
		{"may not attest", bundle("example.org/theirs", "a"), nil, refused},
		{"may not attest, changes the bundle", bundle("example.org/theirs", "b"), bundle("example.org/theirs", "a"), refused},
		{"may not attest, changes a label", labelled, bundle("example.org/theirs", "a"), refused},
		{"may not attest, removes a finalizer", bundle("example.org/theirs", "a"), bundle("example.org/theirs", "a", "example.com/hold"), ""},
		{"another kind", &certificatesv1.CertificateSigningRequest{}, nil, "expected type ClusterTrustBundle, got: *v1.CertificateSigningRequest"},
	} {
		r := admissiontest.Request{Operation: admission.Create, Resource: "clustertrustbundles.certificates.k8s.io", Object: test.now, Old: test.old}
		if test.old != nil {
			r.Operation = admission.Update
		}
		err := plugin.Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	other := admissiontest.Request{Operation: admission.Create, Resource: "others.certificates.k8s.io", Object: bundle("example.org/theirs", "a")}
	if err := plugin.Validate(t.Context(), other.Attributes(), nil); err != nil {
		t.Errorf("another resource: %v", err)
	}
}
