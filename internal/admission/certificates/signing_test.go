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

func TestSigning(t *testing.T) {
	plugin := NewSigning()
	plugin.SetUnconditionalAuthorizer(admissiontest.Signers{Verb: "sign", Signer: "example.com/mine"})
	request := func(signer, certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
		r.Status.Certificate = []byte(certificate)
		for _, c := range conditions {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c})
		}
		return r
	}
	const (
		mine, theirs = "example.com/mine", "example.com/theirs"
		refused      = `user not permitted to sign requests with signerName "example.com/theirs"`
		status       = "certificatesigningrequests.certificates.k8s.io/status"
	)
	labelled := request(theirs, "")
	labelled.Labels = map[string]string{"a": "b"}
	for _, test := range []struct {
		name, resource string
		now, old       runtime.Object
		want           string
	}{
		{"may sign", status, request(mine, "pem"), request(mine, ""), ""},
		{"may not sign", status, request(theirs, "pem"), request(theirs, ""), refused},
		{"may not set the condition Failed", status, request(theirs, "", certificatesv1.CertificateFailed), request(theirs, ""), refused},
		{"the signer of the stored object decides", status, request(mine, "pem"), request(theirs, ""), refused},
		{"neither certificate nor Failed changes", status, labelled, request(theirs, ""), ""},
		{"another kind", status, &certificatesv1.ClusterTrustBundle{}, request(mine, ""), "expected type CertificateSigningRequest, got: *v1.ClusterTrustBundle"},
		{"old object of another kind", status, request(mine, ""), &certificatesv1.ClusterTrustBundle{}, "expected type CertificateSigningRequest, got: *v1.ClusterTrustBundle"},
		{"the request itself", "certificatesigningrequests.certificates.k8s.io", request(theirs, "pem"), request(theirs, ""), ""},
		{"another resource", "others.certificates.k8s.io/status", request(theirs, "pem"), request(theirs, ""), ""},
	} {
		r := admissiontest.Request{Operation: admission.Update, Resource: test.resource, Object: test.now, Old: test.old}
		err := plugin.Validate(t.Context(), r.Attributes(), nil)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
