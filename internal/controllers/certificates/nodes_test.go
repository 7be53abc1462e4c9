// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodeWith(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// TestKnownNodes: a machine with a bootstrap token gets the name of no node that exists.
func TestKnownNodes(t *testing.T) {
	for name, nodes := range map[string][]*corev1.Node{"new": {nodeWith("n2")}, "known": {nodeWith("n1")}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, request{Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: wanted(t, nodeSubject()), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: nodeUsages, Username: "system:bootstrap:abcdef",
			}})
			b.allowed["nodeclient"] = true
			for _, n := range nodes {
				must(t, b.Create(t.Context(), n))
			}
			b.reconcile()
			found := b.get()
			if has(found, certificatesv1.CertificateApproved) != (name == "new") || has(found, certificatesv1.CertificateDenied) != (name == "known") {
				t.Errorf("conditions: %+v", found.Status.Conditions)
			}
			if name == "known" && !strings.Contains(found.Status.Conditions[0].Message, "node n1 exists") {
				t.Errorf("message: %q", found.Status.Conditions[0].Message)
			}
		})
	}
}

// TestServingCertificates: a node gets certificates for names and addresses that are its own.
func TestServingCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		dns   []string
		ips   []net.IP
		as    string
		nodes []*corev1.Node
		want  bool
	}{
		"its own":          {[]string{"n1"}, []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")}, node, []*corev1.Node{nodeWith("n1", "10.0.0.1", "fd00:0::1"), nodeWith("n2", "10.0.0.2")}, true},
		"a host name":      {[]string{"n1.example.com"}, nil, node, []*corev1.Node{nodeWith("n1", "n1.example.com")}, true},
		"another's":        {[]string{"n1"}, []net.IP{net.ParseIP("10.0.0.2")}, node, []*corev1.Node{nodeWith("n1", "10.0.0.1"), nodeWith("n2", "10.0.0.2")}, false},
		"of both":          {nil, []net.IP{net.ParseIP("10.0.0.1")}, node, []*corev1.Node{nodeWith("n1", "10.0.0.1"), nodeWith("n2", "10.0.0.1")}, false},
		"another's name":   {[]string{"n2"}, nil, node, []*corev1.Node{nodeWith("n1", "n2"), nodeWith("n2")}, false},
		"the API's name":   {[]string{"kubernetes"}, nil, node, []*corev1.Node{nodeWith("n1", "10.0.0.1")}, false},
		"no Node":          {[]string{"n1"}, nil, node, nil, false},
		"for another node": {[]string{"n1"}, nil, "system:node:n2", []*corev1.Node{nodeWith("n1")}, false},
		"by somebody else": {[]string{"n1"}, nil, admin, []*corev1.Node{nodeWith("n1")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, request{Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: wanted(t, x509.CertificateRequest{
					Subject: pkix.Name{CommonName: node, Organization: []string{"system:nodes"}}, DNSNames: test.dns, IPAddresses: test.ips,
				}),
				SignerName: certificatesv1.KubeletServingSignerName, Username: test.as,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			}})
			b.allowed["selfnodeclient"] = true
			for _, n := range test.nodes {
				must(t, b.Client.Create(t.Context(), n))
			}
			b.reconcile()
			found := b.get()
			if has(found, certificatesv1.CertificateApproved) != test.want || has(found, certificatesv1.CertificateDenied) {
				t.Errorf("conditions: %+v", found.Status.Conditions)
			}
		})
	}
}
