// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// onlyMesh allows all users to sign for the signer example.com/mesh.
type onlyMesh struct{}

func (onlyMesh) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "sign" && a.GetName() == "example.com/mesh" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

var podKind = podCertificateRequest(onlyMesh{})(clocktesting.NewFakePassiveClock(start))

func askedForPod(t *testing.T, key any) *podRequest {
	return &podRequest{Spec: certificatesv1.PodCertificateRequestSpec{
		SignerName: "example.com/mesh", PodName: "web", PodUID: "p1", ServiceAccountName: "default", ServiceAccountUID: "s1",
		NodeName: "n1", NodeUID: "n1", MaxExpirationSeconds: new(int32(86400)), StubPKCS10Request: newStub(t, key),
	}}
}

func TestPodRequestValidation(t *testing.T) {
	type spec = certificatesv1.PodCertificateRequestSpec
	key := newKey(t, elliptic.P256())
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	subdomain := validation.IsDNS1123Subdomain("A")[0]
	const stub = "spec.stubPKCS10Request: Invalid value: "
	for name, test := range map[string]struct {
		edit func(*spec)
		want []string
	}{
		"valid": {func(*spec) {}, nil},
		"names": {func(s *spec) {
			s.PodName, s.PodUID, s.ServiceAccountName, s.ServiceAccountUID, s.NodeName, s.NodeUID = "A", "", "A", "", "A", ""
		}, []string{
			`spec.podName: Invalid value: "A": ` + subdomain, `spec.podUID: Invalid value: "": must not be empty`,
			`spec.serviceAccountName: Invalid value: "A": ` + subdomain, `spec.serviceAccountUID: Invalid value: "": must not be empty`,
			`spec.nodeName: Invalid value: "A": ` + subdomain, `spec.nodeUID: Invalid value: "": must not be empty`}},
		"a long uid":                          {func(s *spec) { s.PodUID = types.UID(strings.Repeat("a", 129)) }, []string{"spec.podUID: Too long: may not be more than 128 bytes"}},
		"no maximum lifetime":                 {func(s *spec) { s.MaxExpirationSeconds, s.StubPKCS10Request = nil, nil }, []string{"spec.maxExpirationSeconds: Required value: must be set"}},
		"91 days":                             {func(s *spec) { s.MaxExpirationSeconds = new(int32(91 * 86400)) }, nil},
		"too long":                            {func(s *spec) { s.MaxExpirationSeconds = new(int32(91*86400 + 1)) }, []string{"spec.maxExpirationSeconds: Invalid value: 7862401: must be in the range [3600, 7862400]"}},
		"Kubernetes' signer, more than a day": {func(s *spec) { s.SignerName, s.MaxExpirationSeconds = "kubernetes.io/a", new(int32(86401)) }, []string{"spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"}},
		"annotations":                         {func(s *spec) { s.UnverifiedUserAnnotations = map[string]string{"Example.com/A": "b"} }, nil},
		"no stub":                             {func(s *spec) { s.StubPKCS10Request = nil }, []string{"spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"}},
		"not a request":                       {func(s *spec) { s.StubPKCS10Request = []byte("a") }, []string{stub + "must be a valid PKCS#10 CSR"}},
		"a small curve":                       {func(s *spec) { s.StubPKCS10Request = newStub(t, newKey(t, elliptic.P224())) }, []string{stub + `"curve P-224": elliptic public keys must use curve P256, P384, or P521`}},
		"a small key":                         {func(s *spec) { s.StubPKCS10Request = newStub(t, small) }, []string{stub + `"2048-bit modulus": RSA keys must have modulus size 3072 or 4096`}},
		"invalid signature":                   {func(s *spec) { s.StubPKCS10Request[len(s.StubPKCS10Request)-1] ^= 1 }, []string{stub + "invalid signature"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := askedForPod(t, key)
			test.edit(&r.Spec)
			compare(t, checktest.Errors(t.Context(), podKind.Validate, r), test.want...)
		})
	}
	unqualified := askedForPod(t, key)
	unqualified.Spec.UnverifiedUserAnnotations = map[string]string{"a": "b"}
	if errs := checktest.Errors(t.Context(), podKind.Validate, unqualified); len(errs) != 1 || errs[0].Field != "spec.unverifiedUserAnnotations" {
		t.Errorf("an annotation without a domain: %v", errs)
	}
	moved := askedForPod(t, key)
	moved.Spec.NodeName = "n2"
	if errs := checktest.UpdateErrors(t.Context(), podKind.ValidateUpdate, moved, askedForPod(t, key)); len(errs) != 1 || errs[0].Field != "spec" {
		t.Errorf("moved: %v", errs)
	}
}

func TestPodRequestAnswers(t *testing.T) {
	key := newKey(t, elliptic.P256())
	old := askedForPod(t, key)
	answer := func(state string, edit ...func(*certificatesv1.PodCertificateRequestStatus)) *podRequest {
		r := old.DeepCopy()
		r.Status.Conditions = []metav1.Condition{{Type: state, Status: metav1.ConditionTrue, Reason: "Because", LastTransitionTime: metav1.NewTime(start)}}
		for _, e := range edit {
			e(&r.Status)
		}
		return r
	}
	issue := func(by *ecdsa.PrivateKey, edit ...func(*x509.Certificate)) func(*certificatesv1.PodCertificateRequestStatus) {
		return func(s *certificatesv1.PodCertificateRequestStatus) {
			block := newCertificate(t, by, edit...)
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			s.CertificateChain = encode(block)
			s.NotBefore, s.NotAfter, s.BeginRefreshAt = new(metav1.NewTime(leaf.NotBefore)), new(metav1.NewTime(leaf.NotAfter)), new(metav1.NewTime(leaf.NotBefore.Add(time.Hour)))
		}
	}
	mesh := request.WithUser(t.Context(), &user.DefaultInfo{Name: "mesh"})
	for name, test := range map[string]struct {
		now, old *podRequest
		want     string
	}{
		"issued":    {answer(issued, issue(key)), old, ""},
		"denied":    {answer(denied), old, ""},
		"unchanged": {old, old, ""},
		"twice":     {answer(failed), answer(denied), "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"},
		"both": {answer(issued, func(s *certificatesv1.PodCertificateRequestStatus) {
			s.Conditions = append(s.Conditions, answer(denied).Status.Conditions...)
		}), old, `status.conditions.[1].type: Invalid value: "Denied": There may be at most one condition with type "Issued", "Denied", or "Failed"`},
		"not denied":                {answer(denied, func(s *certificatesv1.PodCertificateRequestStatus) { s.Conditions[0].Status = metav1.ConditionFalse }), old, `status.conditions.[0].status: Unsupported value: "False": supported values: "True"`},
		"maybe":                     {answer("Maybe"), old, `status.conditions.[0].type: Unsupported value: "Maybe": supported values: "Issued", "Denied", "Failed"`},
		"denied with a certificate": {answer(denied, issue(key)), old, "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest"},
		"no condition": {answer(denied, func(s *certificatesv1.PodCertificateRequestStatus) { s.Conditions, s.CertificateChain = nil, "a" }), old,
			`status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed"`},
		"no chain":                          {answer(issued), old, `status.certificateChain: Invalid value: "": issued certificate chain must contain at least one certificate`},
		"another key":                       {answer(issued, issue(newKey(t, elliptic.P256()))), old, "leaf certificate was not issued to the requested public key"},
		"no times":                          {answer(issued, issue(key), func(s *certificatesv1.PodCertificateRequestStatus) { s.NotBefore = nil }), old, "status.notBefore: Required value: must be present and consistent with the issued certificate"},
		"time differs from the certificate": {answer(issued, issue(key), func(s *certificatesv1.PodCertificateRequestStatus) { s.NotAfter = s.NotBefore }), old, "must be set to the NotAfter time encoded in the leaf certificate"},
		"in the past":                       {answer(issued, issue(key, func(c *x509.Certificate) { c.NotBefore = start.Add(-5 * time.Minute) })), old, "must be set to within 5 minutes of kube-apiserver's current time"},
		"too short":                         {answer(issued, issue(key, func(c *x509.Certificate) { c.NotAfter = start.Add(59 * time.Minute) })), old, "leaf certificate lifetime must be >= 1 hour"},
		"too long":                          {answer(issued, issue(key, func(c *x509.Certificate) { c.NotAfter = start.Add(25 * time.Hour) })), old, "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"},
		"early refresh":                     {answer(issued, issue(key), func(s *certificatesv1.PodCertificateRequestStatus) { s.BeginRefreshAt = s.NotBefore }), old, "must be at least 10 minutes after status.notBefore"},
		"late refresh":                      {answer(issued, issue(key), func(s *certificatesv1.PodCertificateRequestStatus) { s.BeginRefreshAt = s.NotAfter }), old, "must be at least 10 minutes before status.notAfter"},
		"dots":                              {answer(issued, issue(key, func(c *x509.Certificate) { c.DNSNames = []string{"example.com."} })), old, "leaf certificate's DNSName should not start or end with '.'"},
		"trailing PEM block": {answer(issued, issue(key), func(s *certificatesv1.PodCertificateRequestStatus) {
			s.CertificateChain += encode(&pem.Block{Type: "PUBLIC KEY"})
		}), old, "issued certificate chain must consist entirely of CERTFICATE PEM blocks"},
		"no intermediate": {answer(issued, issue(key), func(s *certificatesv1.PodCertificateRequestStatus) {
			s.CertificateChain += encode(&pem.Block{Type: "CERTIFICATE"})
		}), old,
			"intermediate certificate does not parse as valid X.509"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := checktest.UpdateErrors(mesh, podKind.StatusUpdate.Validate, test.now, test.old)
			if test.want == "" && len(errs) > 0 || test.want != "" && (len(errs) != 1 || !strings.HasSuffix(errs[0].Error(), test.want)) {
				t.Errorf("%v, want %s", errs, test.want)
			}
		})
	}
	other := answer(denied)
	other.Spec.SignerName = "example.com/other"
	before := old.DeepCopy()
	before.Spec.SignerName = "example.com/other"
	compare(t, checktest.UpdateErrors(mesh, podKind.StatusUpdate.Validate, other, before), `spec.signerName: Forbidden: User "mesh" is not permitted to "sign" for signer "example.com/other"`)
	for want, r := range map[string]*podRequest{"Pending": old, "Denied": answer(denied)} {
		if got := podRequestState(r); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestDefaults checks that defaults and declared validations are registered with the scheme.
func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := Group(onlyMesh{}).Register(scheme); err != nil {
		t.Fatal(err)
	}
	r := &podRequest{}
	scheme.Default(r)
	if r.Spec.MaxExpirationSeconds == nil || *r.Spec.MaxExpirationSeconds != 86400 {
		t.Errorf("%v", r.Spec.MaxExpirationSeconds)
	}
	twice := answered("", condition{Type: "Approved"}, condition{Type: "Denied"})
	if errs := scheme.Validate(t.Context(), nil, twice, "status"); len(errs) != 1 || errs[0].Field != "status.conditions" {
		t.Errorf("%v", errs)
	}
}

func TestPodRequestSelectors(t *testing.T) {
	for label, selectable := range map[string]bool{
		"metadata.name": true, "spec.signerName": true, "spec.podName": true, "spec.nodeName": true, "metadata.namespace": false, "spec.podUID": false,
	} {
		if _, _, err := podKind.FieldLabel(label, "x"); (err == nil) != selectable {
			t.Errorf("%s: %v", label, err)
		}
	}
}
