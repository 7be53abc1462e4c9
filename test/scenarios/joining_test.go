// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// TestANodeGetsItsCertificates: a machine with only a bootstrap token gets the identity of a node,
// renews it without approval, and gets a serving certificate once that is approved.
func TestANodeGetsItsCertificates(t *testing.T) {
	s := withoutNode(t)
	s.input(`
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-joins1, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: joins1, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
`, "apply", "--namespace", "kube-system", "-f", "-")
	bindings := map[string][2]string{ // as kubeadm creates them
		"joining-create":  {"system:node-bootstrapper", "system:bootstrappers"},
		"joining-approve": {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"},
		"joining-renew":   {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	}
	for name, binding := range bindings {
		s.kubectl("create", "clusterrolebinding", name, "--clusterrole="+binding[0], "--group="+binding[1])
	}
	t.Cleanup(func() {
		s.try("delete", "secret", "bootstrap-token-joins1", "--namespace", "kube-system")
		for name := range bindings {
			s.try("delete", "clusterrolebinding", name)
		}
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	client := func(credentials func(*rest.Config)) kubernetes.Interface {
		t.Helper()
		config := rest.AnonymousClientConfig(s.cluster.config(t))
		credentials(config)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	request := func(as kubernetes.Interface, name, signer string, usage certificatesv1.KeyUsage, names ...string) {
		t.Helper()
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "system:node:joiner", Organization: []string{"system:nodes"}}, DNSNames: names,
		}, key)
		if err != nil {
			t.Fatal(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
			},
		}
		// The server may not know the token's Secret and bindings at once.
		s.eventually(name+" is requested", func() error {
			_, err := as.CertificatesV1().CertificateSigningRequests().Create(t.Context(), csr, metav1.CreateOptions{})
			return err
		})
		t.Cleanup(func() { s.try("delete", "csr", name) })
	}
	issued := func(as kubernetes.Interface, name string) (certificate []byte) {
		t.Helper()
		s.eventually(name+" is issued", func() error {
			found, err := as.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && len(found.Status.Certificate) == 0 {
				err = errors.New("not yet")
			}
			if err == nil {
				certificate = found.Status.Certificate
			}
			return err
		})
		return certificate
	}

	stranger := client(func(c *rest.Config) { c.BearerToken = "joins1.0123456789abcdef" })
	request(stranger, "join-first", certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
	first := issued(stranger, "join-first")
	node := client(func(c *rest.Config) {
		c.CertData = first
		if c.KeyData, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
			t.Fatal(err)
		}
	})
	request(node, "join-renewed", certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
	issued(node, "join-renewed")
	request(node, "join-serving", certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth, "joiner")
	s.kubectl("certificate", "approve", "join-serving")
	issued(node, "join-serving")
}
