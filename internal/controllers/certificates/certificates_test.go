// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	node  = "system:node:n1"
	admin = "admin"
)

var nodeUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}

// wanted returns a PKCS #10 request in PEM.
func wanted(t *testing.T, template x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func nodeSubject() x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: node, Organization: []string{"system:nodes"}}}
}

// authority returns a Signer with a new CA.
func authority(t *testing.T) Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true}
	return func(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
		template.SerialNumber = big.NewInt(1)
		der, err := x509.CreateCertificate(rand.Reader, template, ca, public, key)
		if err != nil {
			return nil, err
		}
		return x509.ParseCertificate(der)
	}
}

// bench is a reconciler with an API that has one request.
type bench struct {
	*testing.T
	client.Client
	clock   *testingclock.FakeClock
	r       *reconciler
	allowed map[string]bool // subresources that the requester may create
	asked   []authorizationv1.SubjectAccessReviewSpec
}

func newBench(t *testing.T, r request) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, certificatesv1.AddToScheme(scheme))
	must(t, authorizationv1.AddToScheme(scheme))
	must(t, corev1.AddToScheme(scheme))
	r.Name, r.CreationTimestamp = "r", metav1.NewTime(start)
	b := &bench{T: t, clock: testingclock.NewFakeClock(start), allowed: map[string]bool{}}
	b.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&r).WithStatusSubresource(&r).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			review, ok := obj.(*authorizationv1.SubjectAccessReview)
			if !ok {
				return c.Create(ctx, obj)
			}
			b.asked = append(b.asked, review.Spec)
			review.Status.Allowed = b.allowed[review.Spec.ResourceAttributes.Subresource]
			return nil
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, _ ...client.SubResourceUpdateOption) error {
			if sub == "approval" { // as the API does
				for i := range obj.(*request).Status.Conditions {
					obj.(*request).Status.Conditions[i].LastUpdateTime = metav1.NewTime(b.clock.Now())
				}
			}
			return c.Status().Update(ctx, obj)
		},
	}).Build()
	b.r = &reconciler{client: b.Client, clock: b.clock, sign: authority(t)}
	return b
}

func (b *bench) reconcile() ctrl.Result {
	b.Helper()
	result, err := b.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "r"}})
	must(b.T, err)
	return result
}

func (b *bench) get() *request {
	b.Helper()
	found := &request{}
	must(b.T, b.Get(context.Background(), client.ObjectKey{Name: "r"}, found))
	return found
}

func (b *bench) gone() bool {
	return apierrors.IsNotFound(b.Get(context.Background(), client.ObjectKey{Name: "r"}, &request{}))
}

func (b *bench) approve() {
	b.Helper()
	found := b.get()
	found.Status.Conditions = append(found.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(b.clock.Now())})
	must(b.T, b.Status().Update(context.Background(), found))
}

func TestNodeCertificateIsApprovedAndSigned(t *testing.T) {
	b := newBench(t, request{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: wanted(t, nodeSubject()), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: nodeUsages,
		Username: node, UID: "u", Groups: []string{"system:nodes"}, Extra: map[string]certificatesv1.ExtraValue{"k": {"v"}},
	}})
	b.clock.Step(10 * time.Second)
	if again := b.reconcile().RequeueAfter; again != 10*time.Second {
		t.Errorf("requeued after %v", again)
	}
	if len(b.asked) != 2 || len(b.get().Status.Conditions) != 0 {
		t.Errorf("reviewed subresources %v", b.asked)
	}

	b.allowed["selfnodeclient"] = true
	b.reconcile()
	review := authorizationv1.SubjectAccessReviewSpec{
		User: node, UID: "u", Groups: []string{"system:nodes"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "certificates.k8s.io", Version: "*", Resource: "certificatesigningrequests", Subresource: "selfnodeclient", Verb: "create"},
	}
	if diff := cmp.Diff(review, b.asked[2]); diff != "" {
		t.Errorf("review (-want +got):\n%s", diff)
	}
	if c := b.get().Status.Conditions[0]; c.Type != certificatesv1.CertificateApproved || c.Reason != "AutoApproved" ||
		c.Message != "Auto approving self kubelet client certificate after SubjectAccessReview." {
		t.Errorf("condition %v", c)
	}

	b.reconcile()
	block, _ := pem.Decode(b.get().Status.Certificate)
	signed, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	if signed.Subject.String() != "CN="+node+",O=system:nodes" || signed.IsCA || !signed.BasicConstraintsValid ||
		signed.KeyUsage != x509.KeyUsageDigitalSignature || !cmp.Equal(signed.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("signed %v", signed)
	}
	if at := start.Add(10*time.Second - backdate); !signed.NotBefore.Equal(at) || !signed.NotAfter.Equal(at.Add(maxLifetime)) {
		t.Errorf("valid from %v to %v", signed.NotBefore, signed.NotAfter)
	}

	if again := b.reconcile().RequeueAfter; again != answeredTTL+time.Second {
		t.Errorf("requeued after %v", again)
	}
	b.clock.Step(answeredTTL + time.Second)
	if b.reconcile(); !b.gone() {
		t.Error("not deleted")
	}
}

// A request that cannot be parsed is deleted after its TTL, as any other.
func TestUnreadableRequest(t *testing.T) {
	empty := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"})
	for name, content := range map[string][]byte{"nothing": nil, "another block": []byte("text"), "an empty request": empty} {
		spec := certificatesv1.CertificateSigningRequestSpec{Request: content, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: node}
		pending, approved := newBench(t, request{Spec: spec}), newBench(t, request{Spec: spec})
		approved.approve()
		for _, b := range []*bench{pending, approved} {
			again := b.reconcile().RequeueAfter
			if again != pendingTTL+time.Second {
				t.Errorf("%s: requeued after %v", name, again)
			}
			b.clock.Step(pendingTTL + time.Second)
			if b.reconcile(); !b.gone() {
				t.Errorf("%s: not deleted", name)
			}
		}
	}
}

func TestOtherRequestsAreNotApproved(t *testing.T) {
	for name, r := range map[string]certificatesv1.CertificateSigningRequestSpec{
		"another signer":             {SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: nodeUsages, Username: node, Request: wanted(t, nodeSubject())},
		"other usages":               {SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}, Username: node, Request: wanted(t, nodeSubject())},
		"not the identity of a node": {SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: nodeUsages, Username: node, Request: wanted(t, x509.CertificateRequest{})},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, request{Spec: r})
			b.allowed["selfnodeclient"], b.allowed["nodeclient"] = true, true
			if again := b.reconcile().RequeueAfter; again != pendingTTL+time.Second {
				t.Errorf("requeued after %v", again)
			}
			if len(b.asked) > 0 || len(b.get().Status.Conditions) > 0 {
				t.Errorf("reviewed subresources %v, conditions %v", b.asked, b.get().Status.Conditions)
			}
		})
	}
}

func TestRequestOnBehalfOfANode(t *testing.T) {
	b := newBench(t, request{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: wanted(t, nodeSubject()), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: nodeUsages, Username: admin,
	}})
	b.allowed["selfnodeclient"], b.allowed["nodeclient"] = true, true
	b.reconcile()
	if got := b.get().Status.Conditions[0].Message; got != "Auto approving kubelet client certificate after SubjectAccessReview." || len(b.asked) != 1 {
		t.Errorf("%q after %v", got, b.asked)
	}
}

func TestSignerRules(t *testing.T) {
	with := func(change func(*x509.CertificateRequest)) x509.CertificateRequest {
		r := nodeSubject()
		change(&r)
		return r
	}
	serving := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth}
	dns := func(r *x509.CertificateRequest) { r.DNSNames = []string{"n1"} }
	ip := func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }
	email := func(r *x509.CertificateRequest) { r.DNSNames = nil; r.EmailAddresses = []string{"a@b"} }
	stranger := func(r *x509.CertificateRequest) { r.Subject.CommonName = "me" }
	for _, tt := range []struct {
		signer string
		r      x509.CertificateRequest
		usages []certificatesv1.KeyUsage
		want   string
	}{
		{certificatesv1.KubeAPIServerClientSignerName, with(stranger), nodeUsages, ""},
		{certificatesv1.KubeAPIServerClientSignerName, with(stranger), nodeUsages[:1], "missing required usage for client certificate: client auth"},
		{certificatesv1.KubeAPIServerClientSignerName, with(stranger), serving, "invalid usage for client certificate: server auth"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, nodeSubject(), nodeUsages, ""},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, nodeSubject(), serving, "usages did not match [client auth digital signature key encipherment]"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, with(dns), nodeUsages, "DNS subjectAltNames are not allowed"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, with(ip), nodeUsages, "IP subjectAltNames are not allowed"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, with(email), nodeUsages, "Email subjectAltNames are not allowed"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, with(stranger), nodeUsages, "subject common name does not begin with system:node:"},
		{certificatesv1.KubeAPIServerClientKubeletSignerName, x509.CertificateRequest{}, nodeUsages, "subject organization is not system:nodes"},
		{certificatesv1.KubeletServingSignerName, with(dns), serving, ""},
		{certificatesv1.KubeletServingSignerName, with(ip), []certificatesv1.KeyUsage{serving[0], serving[2]}, ""},
		{certificatesv1.KubeletServingSignerName, nodeSubject(), serving, "DNS or IP subjectAltName is required"},
		{certificatesv1.KubeletServingSignerName, with(dns), nodeUsages, "usages did not match [digital signature key encipherment server auth]"},
		{"kubernetes.io/legacy-unknown", with(dns), serving, ""},
	} {
		b := newBench(t, request{Spec: certificatesv1.CertificateSigningRequestSpec{Request: wanted(t, tt.r), SignerName: tt.signer, Usages: tt.usages}})
		b.approve()
		b.reconcile()
		found := b.get()
		switch last := found.Status.Conditions[len(found.Status.Conditions)-1]; {
		case tt.want == "" && len(found.Status.Certificate) == 0:
			t.Errorf("%s, %v: no certificate but %v", tt.signer, tt.usages, found.Status.Conditions)
		case tt.want != "" && (len(found.Status.Certificate) > 0 || last.Type != certificatesv1.CertificateFailed || last.Reason != "SignerValidationFailure" || last.Message != tt.want):
			t.Errorf("%s, %v: %v\nwant %q", tt.signer, tt.usages, last, tt.want)
		}
	}
}

func TestOtherSignersAreIgnored(t *testing.T) {
	spec := certificatesv1.CertificateSigningRequestSpec{Request: wanted(t, nodeSubject()), SignerName: "example.com/mine", Usages: nodeUsages}
	b := newBench(t, request{Spec: spec})
	b.approve()
	b.reconcile()
	if found := b.get(); len(found.Status.Certificate) > 0 || len(found.Status.Conditions) != 1 {
		t.Errorf("another signer: %v", found.Status)
	}
	spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	for _, t2 := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		b := newBench(t, request{Spec: spec, Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: t2}}}})
		b.approve()
		if b.reconcile(); len(b.get().Status.Certificate) > 0 {
			t.Errorf("signed although %s", t2)
		}
	}
}

func TestLife(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{1: minLifetime, 600: minLifetime, 3600: time.Hour, 1 << 30: maxLifetime} {
		if got := lifetime(&seconds); got != want {
			t.Errorf("%d s give %v, want %v", seconds, got, want)
		}
	}
	parsed := &x509.CertificateRequest{}
	template, err := templateFor(parsed, &request{Spec: certificatesv1.CertificateSigningRequestSpec{ExpirationSeconds: ptr.To[int32](3600)}}, start)
	must(t, err)
	if !template.NotAfter.Equal(start.Add(time.Hour)) { // not shortened by backdate
		t.Errorf("ends at %v", template.NotAfter)
	}
	_, err = templateFor(parsed, &request{Spec: certificatesv1.CertificateSigningRequestSpec{Usages: []certificatesv1.KeyUsage{"none"}}}, start)
	if err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("error %v", err)
	}
}

func TestDeadline(t *testing.T) {
	later := metav1.NewTime(start.Add(time.Minute))
	signer := authority(t)
	template := &x509.Certificate{NotAfter: start.Add(20 * time.Minute)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	signed, err := signer(template, key.Public())
	must(t, err)
	expiring := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw})
	condition := func(t certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
		return []certificatesv1.CertificateSigningRequestCondition{{Type: t, LastUpdateTime: later}}
	}
	for name, tt := range map[string]struct {
		status certificatesv1.CertificateSigningRequestStatus
		want   time.Duration // since the start; 0 means never
	}{
		"pending":                           {certificatesv1.CertificateSigningRequestStatus{}, 24 * time.Hour},
		"approved":                          {certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Approved")}, 24*time.Hour + time.Minute},
		"issued":                            {certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Approved"), Certificate: []byte("x")}, time.Hour + time.Minute},
		"issued, certificate expires first": {certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Approved"), Certificate: expiring}, 20 * time.Minute},
		"denied":                            {certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Denied")}, time.Hour + time.Minute},
		"failed":                            {certificatesv1.CertificateSigningRequestStatus{Conditions: append(condition("Approved"), condition("Failed")...)}, time.Hour + time.Minute},
		"unknown condition":                 {certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Other")}, 0},
		"denied, time unknown":              {certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: "Denied"}}}, 0},
	} {
		got, ends := deadline(&request{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(start)}, Status: tt.status})
		if ends != (tt.want > 0) || ends && !got.Equal(start.Add(tt.want)) {
			t.Errorf("%s: %v, %v, want %v", name, got, ends, start.Add(tt.want))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
