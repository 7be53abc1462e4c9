// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// TestCertificates: a user whose CSR is approved can log in with the certificate. A request that is
// denied, or that asks for more than the signer permits, gets none.
func TestCertificates(t *testing.T) {
	s := withoutNode(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(name, signer, usage string, subject pkix.Name) {
		t.Helper()
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		if err != nil {
			t.Fatal(err)
		}
		encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		s.apply(fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: %s}
spec:
  request: %s
  signerName: kubernetes.io/%s
  expirationSeconds: 3600
  usages: [digital signature, %s]
`, name, base64.StdEncoding.EncodeToString(encoded), signer, usage))
		t.Cleanup(func() { s.try("delete", "csr", name) })
	}
	state := func(name, want string) {
		t.Helper()
		s.eventually(name+" is "+want, func() error {
			if line := s.kubectl("get", "csr", name, "--no-headers"); !strings.HasSuffix(strings.TrimSpace(line), " "+want) {
				return fmt.Errorf("%s", line)
			}
			return nil
		})
	}

	jane := pkix.Name{CommonName: "jane", Organization: []string{"writers"}}
	request("jane", "kube-apiserver-client", "client auth", jane)
	state("jane", "Pending")
	s.kubectl("certificate", "approve", "jane")
	state("jane", "Approved,Issued")
	issued, err := base64.StdEncoding.DecodeString(s.jsonpath("{.status.certificate}", "csr", "jane"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(issued)
	if signed, err := x509.ParseCertificate(block.Bytes); err != nil || time.Until(signed.NotAfter) > time.Hour {
		t.Errorf("good until %v (%v), an hour was asked for", signed.NotAfter, err)
	}
	config := rest.AnonymousClientConfig(s.cluster.config(t))
	config.CertData = issued
	if config.KeyData, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(me.Status.UserInfo.Username, me.Status.UserInfo.Groups); got != "jane[writers system:authenticated]" {
		t.Errorf("logs in as %s", got)
	}

	request("joe", "kube-apiserver-client", "client auth", pkix.Name{CommonName: "joe"})
	s.kubectl("certificate", "deny", "joe")
	state("joe", "Denied")
	request("server", "kube-apiserver-client", "server auth", pkix.Name{CommonName: "server"})
	s.kubectl("certificate", "approve", "server")
	state("server", "Approved,Failed")
	if got := s.jsonpath(`{.status.conditions[?(@.type=="Failed")].message}`, "csr", "server"); got != "invalid usage for client certificate: server auth" {
		t.Errorf("failed with %q", got)
	}
	// An administrator may request a node's certificate, which needs no further approval.
	request("node", "kube-apiserver-client-kubelet", "client auth", pkix.Name{CommonName: "system:node:n9", Organization: []string{"system:nodes"}})
	state("node", "Approved,Issued")
	// Pods get the API server's CA from a ClusterTrustBundle.
	if bundle := s.kubectl("get", "clustertrustbundles", "--field-selector", "spec.signerName=kubernetes.io/kube-apiserver-serving",
		"-o", "jsonpath={.items[*].spec.trustBundle}"); strings.TrimSpace(bundle) != strings.TrimSpace(string(config.CAData)) {
		t.Errorf("the bundle is\n%s", bundle)
	}
}
