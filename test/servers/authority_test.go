// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

var (
	address  = netip.MustParseAddr("10.200.0.1")
	podRange = netip.MustParsePrefix("10.200.0.0/24")
)

func issued(t *testing.T) (c certificates, authorities *x509.CertPool) {
	t.Helper()
	c, err := newCertificates(t.TempDir(), "box", address)
	if err != nil {
		t.Fatal(err)
	}
	if authorities, err = cert.NewPool(c.authority.files.certificate); err != nil {
		t.Fatal(err)
	}
	return c, authorities
}

func read(t *testing.T, c credential) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.certificate, c.key) // fails if the key does not match
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// TestServersAreFoundAtAllTheirNames: certificates contain all names and addresses of a server.
func TestServersAreFoundAtAllTheirNames(t *testing.T) {
	c, authorities := issued(t)
	for host, server := range map[string]credential{
		"10.200.0.1":                           c.apiserver,
		"10.96.0.1":                            c.apiserver,
		"kubernetes.default.svc":               c.apiserver,
		"kubernetes.default.svc.cluster.local": c.apiserver,
		"box":                                  c.kubelet,
		"[10.200.0.1]":                         c.kubelet,
	} {
		options := x509.VerifyOptions{DNSName: host, Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := read(t, server).Verify(options); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestIdentitiesOfComponents: the certificates have the user names that the bootstrap roles are
// bound to, and the group that the node authorizer checks.
func TestIdentitiesOfComponents(t *testing.T) {
	c, authorities := issued(t)
	for file, want := range map[string][]string{
		c.admin:             {"kubernetes-admin", "system:masters"},
		c.controllerManager: {"system:kube-controller-manager"},
		c.scheduler:         {"system:kube-scheduler"},
		c.node:              {"system:node:box", "system:nodes"},
		c.proxy:             {"system:kube-proxy"},
	} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != "https://10.200.0.1:6443" {
			t.Errorf("%s leads to %s", file, config.Host)
		}
		// The kubeconfig works from any directory.
		client, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil || len(config.CAData) == 0 {
			t.Fatalf("%s: %v, authority %q", file, err, config.CAData)
		}
		checkClient(t, client.Leaf, authorities, want)
	}
	checkClient(t, read(t, c.kubeletClient), authorities, []string{"kube-apiserver-kubelet-client", "system:masters"})
	checkClient(t, read(t, c.proxyClient), authorities, []string{"front-proxy-client"})
}

func checkClient(t *testing.T, client *x509.Certificate, authorities *x509.CertPool, want []string) {
	t.Helper()
	if got := append([]string{client.Subject.CommonName}, client.Subject.Organization...); !slices.Equal(got, want) {
		t.Errorf("a client is %q, want %q", got, want)
	}
	options := x509.VerifyOptions{Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := client.Verify(options); err != nil {
		t.Errorf("%s: %v", want[0], err)
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if _, err := client.Verify(options); err == nil {
		t.Errorf("%s can be used by a server", want[0])
	}
}

// TestFlagsNameFilesThatExist: each file in a flag was issued.
func TestFlagsNameFilesThatExist(t *testing.T) {
	c, _ := issued(t)
	n := node{dir: t.TempDir(), name: "box", address: address, pods: podRange}
	dir := filepath.Dir(c.admin)
	flags := slices.Concat(
		c.apiserverFlags("http://127.0.0.1:2379", address), c.controllerManagerFlags("1", n), c.schedulerFlags("2"), n.kubeletFlags(c, "config"))
	files := 0
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if !strings.HasPrefix(value, dir) {
			continue
		}
		files++
		content, err := os.ReadFile(value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if isKey := strings.Contains(string(content), "PRIVATE KEY") && !strings.Contains(name, "kubeconfig"); isKey != strings.HasSuffix(value, ".key") {
			t.Errorf("%s is a key: %t", flag, isKey)
		}
	}
	if files < 20 {
		t.Errorf("only %d flags name files", files)
	}
}
