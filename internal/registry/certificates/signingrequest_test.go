// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

var (
	start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	kind  = signingRequest(clocktesting.NewFakePassiveClock(start))
)

func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newStub(t *testing.T, key any) []byte {
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return stub
}

// newCertificate returns a self-signed certificate, changed by edit.
func newCertificate(t *testing.T, key *ecdsa.PrivateKey, edit ...func(*x509.Certificate)) *pem.Block {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, BasicConstraintsValid: true,
		NotBefore: start, NotAfter: start.Add(24 * time.Hour),
	}
	for _, e := range edit {
		e(template)
	}
	data, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "CERTIFICATE", Bytes: data}
}

func encode(blocks ...*pem.Block) string {
	var out strings.Builder
	for _, block := range blocks {
		out.Write(pem.EncodeToMemory(block))
	}
	return out.String()
}

func asked(t *testing.T) *csr {
	return &csr{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    []byte(encode(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: newStub(t, newKey(t, elliptic.P256()))})),
		SignerName: "example.com/mesh", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
	}}
}

func TestRequestValidation(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*certificatesv1.CertificateSigningRequestSpec)
		want []string
	}{
		"valid":       {func(*certificatesv1.CertificateSigningRequestSpec) {}, nil},
		"no usages":   {func(s *certificatesv1.CertificateSigningRequestSpec) { s.Usages = nil }, []string{"spec.usages: Required value"}},
		"usage twice": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.Usages = append(s.Usages, s.Usages[0]) }, []string{`spec.usages[2]: Duplicate value: "client auth"`}},
		"no signer":   {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "" }, []string{"spec.signerName: Required value"}},
		"a signer": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "mesh" },
			[]string{`spec.signerName: Invalid value: "mesh": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
		"the legacy signer": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = legacySigner },
			[]string{`spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`}},
		"too short": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = new(int32(599)) },
			[]string{"spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := asked(t)
			test.edit(&r.Spec)
			compare(t, checktest.Errors(t.Context(), kind.Validate, r), test.want...)
		})
	}
	r := asked(t)
	r.Spec.Usages = []certificatesv1.KeyUsage{"world domination"}
	errs := checktest.Errors(t.Context(), kind.Validate, r)
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeNotSupported || !strings.HasPrefix(errs[0].Detail, `supported values: "any", "cert sign"`) {
		t.Errorf("a usage: %v", errs)
	}
	for want, data := range map[string]string{
		"PEM block type must be CERTIFICATE REQUEST": encode(&pem.Block{Type: "CERTIFICATE"}),
		"asn1": encode(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("a")}),
	} {
		r.Spec.Request = []byte(data)
		if errs := checktest.Errors(t.Context(), kind.Validate, r); errs[0].Field != "spec.request" || !strings.HasPrefix(errs[0].Detail, want) {
			t.Errorf("%v, want %s", errs, want)
		}
	}
}

func TestRequestRecordsUser(t *testing.T) {
	r := asked(t)
	r.Spec.Username, r.Spec.Groups = "root", []string{"system:masters"}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann", UID: "u1", Groups: []string{"dev"}, Extra: map[string][]string{"a": {"b"}}})
	kind.Prepare(ctx, r, nil)
	want := asked(t).Spec
	want.Request = r.Spec.Request
	want.Username, want.UID, want.Groups, want.Extra = "ann", "u1", []string{"dev"}, map[string]certificatesv1.ExtraValue{"a": {"b"}}
	if diff := cmp.Diff(want, r.Spec); diff != "" {
		t.Error(diff)
	}
	changed := r.DeepCopy()
	changed.Spec.SignerName = "example.com/other"
	kind.Prepare(context.Background(), changed, r)
	if diff := cmp.Diff(r.Spec, changed.Spec); diff != "" {
		t.Errorf("changed: %s", diff)
	}
}

func answered(certificate string, conditions ...condition) *csr {
	return &csr{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte(certificate), Conditions: conditions}}
}

func TestRequestUpdates(t *testing.T) {
	approved := condition{Type: "Approved", Status: corev1.ConditionTrue, Reason: "Fine"}
	deniedNow := condition{Type: "Denied", Status: corev1.ConditionTrue}
	failedNow := condition{Type: "Failed", Status: corev1.ConditionTrue}
	signed, other := encode(newCertificate(t, newKey(t, elliptic.P256()))), encode(newCertificate(t, newKey(t, elliptic.P384())))
	type update = func(_ context.Context, c *check.Checker, r, old *csr)
	approve, sign, plain := kind.Updates["approval"].Validate, kind.StatusUpdate.Validate, kind.ValidateUpdate
	for name, test := range map[string]struct {
		by       update
		now, old *csr
		want     []string
	}{
		"approve":                   {approve, answered("", approved), answered(""), nil},
		"approve and deny":          {approve, answered("", approved, deniedNow), answered("", approved), []string{`status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`}},
		"remove an approval":        {approve, answered(""), answered("", approved), []string{`status.conditions: Forbidden: updates may not remove a condition of type "Approved"`}},
		"approve and sign":          {approve, answered(signed, approved), answered(""), []string{"status.certificate: Forbidden: updates may not set certificate content"}},
		"sign":                      {sign, answered(signed, approved), answered("", approved), nil},
		"fail":                      {sign, answered("", approved, failedNow), answered("", approved), nil},
		"sign again":                {sign, answered(other), answered(signed), []string{"status.certificate: Forbidden: updates may not modify existing certificate content"}},
		"sign and approve":          {sign, answered(signed, approved), answered(""), []string{`status.conditions: Forbidden: updates may not add a condition of type "Approved"`}},
		"through the main resource": {plain, answered(signed), answered(signed), nil},
		"no certificate":            {sign, answered("a"), answered(""), []string{`status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`}},
		"a key":                     {sign, answered(signed + encode(&pem.Block{Type: "EC PRIVATE KEY"})), answered(""), []string{`status.certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are allowed, found "EC PRIVATE KEY"`}},
		"headers":                   {sign, answered(encode(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}})), answered(""), []string{`status.certificate: Invalid value: "<certificate data>": no PEM block headers are permitted`}},
		"conditions": {approve, answered("", condition{Status: corev1.ConditionFalse}, condition{Type: "Denied", Status: corev1.ConditionFalse}, condition{Type: "A"}, condition{Type: "B", Status: "Perhaps"}, condition{Type: "B", Status: "Unknown"}), answered(""), []string{
			"status.conditions[0].type: Required value",
			`status.conditions[1].status: Unsupported value: "False": supported values: "True"`,
			"status.conditions[2].status: Required value",
			`status.conditions[3].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"`,
			`status.conditions[4].type: Duplicate value: "B"`}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.UpdateErrors(t.Context(), test.by, test.now, test.old), test.want...)
		})
	}
	changed := approved
	changed.Reason = "Bribed"
	errs := checktest.UpdateErrors(t.Context(), sign, answered("", changed), answered("", approved))
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Detail, `updates may not modify a condition of type "Approved"`) {
		t.Errorf("%v", errs)
	}
}

func TestRequestPrepareStatus(t *testing.T) {
	earlier := metav1.NewTime(start.Add(-time.Hour))
	old := answered("", condition{Type: "Approved", Status: corev1.ConditionTrue, Reason: "Fine", LastUpdateTime: earlier, LastTransitionTime: earlier},
		condition{Type: "Checked", Status: corev1.ConditionTrue, LastUpdateTime: earlier, LastTransitionTime: earlier})
	now := answered("x", condition{Type: "Failed", Status: corev1.ConditionTrue}, condition{Type: "Approved", Status: corev1.ConditionTrue, Reason: "Bribed"},
		condition{Type: "Checked", Status: corev1.ConditionTrue})
	kind.StatusUpdate.Prepare(t.Context(), now, old)
	at := metav1.NewTime(start)
	want := []condition{{Type: "Failed", Status: corev1.ConditionTrue, LastUpdateTime: at, LastTransitionTime: at}, old.Status.Conditions[0],
		{Type: "Checked", Status: corev1.ConditionTrue, LastUpdateTime: at, LastTransitionTime: earlier}}
	if diff := cmp.Diff(want, now.Status.Conditions); diff != "" {
		t.Error(diff)
	}
	approval := answered("x", condition{Type: "Denied", Status: corev1.ConditionTrue})
	approval.Spec.SignerName = "example.com/other"
	kind.Updates["approval"].Prepare(t.Context(), approval, answered("y"))
	if string(approval.Status.Certificate) != "y" || approval.Spec.SignerName != "" || approval.Status.Conditions[0].LastUpdateTime != at {
		t.Errorf("%+v", approval)
	}
}

func TestRequestColumns(t *testing.T) {
	yes := func(t certificatesv1.RequestConditionType) condition { return condition{Type: t} }
	for want, r := range map[string]*csr{
		"Pending":         answered(""),
		"Approved,Issued": answered("a", yes("Approved")),
		"Approved,Failed": answered("", yes("Failed"), yes("Approved")),
		"Denied":          answered("", yes("Approved"), yes("Denied")),
	} {
		if got := stateText(r); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := durationText(&csr{Spec: certificatesv1.CertificateSigningRequestSpec{ExpirationSeconds: new(int32(3600))}}); got != "60m" {
		t.Error(got)
	}
}
