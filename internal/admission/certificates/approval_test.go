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

func TestApproval(t *testing.T) {
	plugin := NewApproval()
	plugin.SetUnconditionalAuthorizer(admissiontest.Signers{Verb: "approve", Signer: "example.com/mine"})
	request := func(signer string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	}
	for _, test := range []struct {
		name, resource string
		now, old       runtime.Object
		want           string
	}{
		{"may approve", "certificatesigningrequests.certificates.k8s.io/approval", request("example.com/mine"), request("example.com/mine"), ""},
		{"may not approve", "certificatesigningrequests.certificates.k8s.io/approval", request("example.com/theirs"), request("example.com/theirs"),
			`user not permitted to approve requests with signerName "example.com/theirs"`},
		{"the signer of the stored object decides", "certificatesigningrequests.certificates.k8s.io/approval", request("example.com/mine"), request("example.com/theirs"),
			`user not permitted to approve requests with signerName "example.com/theirs"`},
		{"another kind", "certificatesigningrequests.certificates.k8s.io/approval", request("example.com/mine"), &certificatesv1.ClusterTrustBundle{},
			"expected type CertificateSigningRequest, got: *v1.ClusterTrustBundle"},
		{"the request itself", "certificatesigningrequests.certificates.k8s.io", request("example.com/theirs"), request("example.com/theirs"), ""},
		{"another resource", "others.certificates.k8s.io/approval", request("example.com/theirs"), request("example.com/theirs"), ""},
	} {
		r := admissiontest.Request{Operation: admission.Update, Resource: test.resource, Object: test.now, Old: test.old}
		err := plugin.Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
