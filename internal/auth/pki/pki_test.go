// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var serverNames = Names{DNS: []string{"kubernetes", "localhost"}, IPs: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("10.96.0.1")}}

func open(t *testing.T, dir string, now time.Time) *PKI {
	t.Helper()
	p, err := Open(dir, clocktesting.NewFakePassiveClock(now))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no PEM block in %q", data)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verify(t *testing.T, p *Authority, pair *Pair, usage x509.ExtKeyUsage, dnsName string) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CertPEM)
	_, err := parse(t, pair.CertPEM).Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: dnsName,
	})
	return err
}

func TestEveryCertificate(t *testing.T) {
	p := open(t, t.TempDir(), start)
	tests := []struct {
		name      string
		obtain    func() (*Pair, error)
		authority *Authority
		usage     x509.ExtKeyUsage
		subject   string
		dnsName   string
	}{
		{"api server", func() (*Pair, error) { return p.APIServer(serverNames) }, p.Cluster, x509.ExtKeyUsageServerAuth, "CN=kube-apiserver", "10.96.0.1"},
		{"admin", p.Admin, p.Cluster, x509.ExtKeyUsageClientAuth, "CN=kubernetes-admin,O=system:masters", ""},
		{"kubelet client", p.KubeletClient, p.Cluster, x509.ExtKeyUsageClientAuth, "CN=kube-apiserver-kubelet-client,O=system:masters", ""},
		{"node", func() (*Pair, error) { return p.Node("n1") }, p.Cluster, x509.ExtKeyUsageClientAuth, "CN=system:node:n1,O=system:nodes", ""},
		{"node serving", func() (*Pair, error) { return p.NodeServing("n1", Names{DNS: []string{"n1"}}) }, p.Cluster, x509.ExtKeyUsageServerAuth, "CN=system:node:n1,O=system:nodes", "n1"},
		{"any user", func() (*Pair, error) { return p.Client("system:kube-scheduler", "a", "b") }, p.Cluster, x509.ExtKeyUsageClientAuth, "CN=system:kube-scheduler,O=a+O=b", ""},
		{"front proxy", p.FrontProxyClient, p.FrontProxy, x509.ExtKeyUsageClientAuth, "CN=front-proxy-client", ""},
	}
	files := map[string]string{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pair, err := tt.obtain()
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(t, tt.authority, pair, tt.usage, tt.dnsName); err != nil {
				t.Errorf("not trusted: %v", err)
			}
			if _, err := pair.TLS(); err != nil {
				t.Errorf("the key does not match: %v", err)
			}
			c := parse(t, pair.CertPEM)
			if got := c.Subject.String(); got != tt.subject {
				t.Errorf("subject %q, want %q", got, tt.subject)
			}
			if life := c.NotAfter.Sub(start); life != leafLife {
				t.Errorf("valid for %v, want %v", life, leafLife)
			}
			if other, ok := files[pair.CertFile]; ok {
				t.Errorf("%s and %s share %s", tt.name, other, pair.CertFile)
			}
			files[pair.CertFile] = tt.name
			for _, file := range []string{pair.CertFile, pair.KeyFile} {
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: mode %v, error %v; want 0600", file, info.Mode(), err)
				}
			}
		})
	}
	if life := p.Cluster.Certificate.NotAfter.Sub(start); life != authorityLife {
		t.Errorf("the CA is valid for %v, want %v", life, authorityLife)
	}
	if verify(t, p.Cluster, must(t, p.FrontProxyClient), x509.ExtKeyUsageClientAuth, "") == nil {
		t.Error("the cluster's CA trusts the front proxy's certificate, so its clients could impersonate users")
	}
}

func must(t *testing.T, obtain func() (*Pair, error)) *Pair {
	t.Helper()
	pair, err := obtain()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestReuse(t *testing.T) {
	names := serverNames
	tests := []struct {
		name   string
		after  time.Duration
		names  Names
		damage func(t *testing.T, pair *Pair)
		reused bool
	}{
		{name: "restart", names: names, reused: true},
		{name: "names in another order", names: Names{DNS: []string{"localhost", "kubernetes"}, IPs: []net.IP{names.IPs[1], names.IPs[0]}}, reused: true},
		{name: "more than a third of its life left", after: leafLife * 66 / 100, names: names, reused: true},
		{name: "less than a third left", after: leafLife * 68 / 100, names: names},
		{name: "clock set back", after: -time.Hour, names: names},
		{name: "another address", names: Names{DNS: names.DNS, IPs: []net.IP{net.ParseIP("10.0.0.7")}}},
		{name: "another name", names: Names{DNS: []string{"localhost"}, IPs: names.IPs}},
		{name: "truncated certificate", names: names, damage: func(t *testing.T, pair *Pair) { truncate(t, pair.CertFile) }},
		{name: "missing key", names: names, damage: func(t *testing.T, pair *Pair) { remove(t, pair.KeyFile) }},
		{name: "crash between key and certificate", names: names, damage: func(t *testing.T, pair *Pair) {
			_, key, err := newKey()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(pair.KeyFile, key, private); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			first := must(t, func() (*Pair, error) { return open(t, dir, start).APIServer(names) })
			if tt.damage != nil {
				tt.damage(t, first)
			}
			second := must(t, func() (*Pair, error) { return open(t, dir, start.Add(tt.after)).APIServer(tt.names) })
			if got := bytes.Equal(first.CertPEM, second.CertPEM); got != tt.reused {
				t.Fatalf("reused %v, want %v", got, tt.reused)
			}
			if tt.reused && !bytes.Equal(first.KeyPEM, second.KeyPEM) {
				t.Error("the key of a reused certificate differs")
			}
			loaded, err := tls.LoadX509KeyPair(second.CertFile, second.KeyFile)
			if err != nil {
				t.Fatalf("the stored files cannot be loaded: %v", err)
			}
			if !bytes.Equal(loaded.Leaf.Raw, parse(t, second.CertPEM).Raw) {
				t.Error("the stored certificate is not the returned one")
			}
		})
	}
}

func TestDurableSecretsSurviveRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "pki")
	first, second := open(t, dir, start), open(t, dir, start.Add(time.Hour))
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, error %v; want 0700", info.Mode(), err)
	}
	if !bytes.Equal(first.Cluster.CertPEM, second.Cluster.CertPEM) || !bytes.Equal(first.FrontProxy.CertPEM, second.FrontProxy.CertPEM) {
		t.Error("an authority was replaced")
	}
	if !first.ServiceAccountKey.Equal(second.ServiceAccountKey) {
		t.Error("the token key was replaced")
	}
}

func TestKeyAloneIsUsed(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, start)
	remove(t, first.Cluster.CertFile)
	second := open(t, dir, start)
	if !samePublicKey(first.Cluster.Certificate.PublicKey, second.Cluster.Certificate.PublicKey) {
		t.Error("a key whose certificate was not written yet was discarded")
	}
}

func TestUnusableAuthorityIsRefusedUntouched(t *testing.T) {
	tests := []struct {
		name   string
		after  time.Duration
		damage func(t *testing.T, dir string)
		want   string
	}{
		{name: "missing key", damage: func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "ca.key")) }, want: "is missing: restore it"},
		{name: "truncated certificate", damage: func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "ca.crt")) }, want: "read certificate authority"},
		{name: "truncated key", damage: func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "ca.key")) }, want: "read private key"},
		{name: "another cluster's key", damage: func(t *testing.T, dir string) {
			other := t.TempDir()
			open(t, other, start)
			key, err := os.ReadFile(filepath.Join(other, "ca.key"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600); err != nil {
				t.Fatal(err)
			}
		}, want: "does not belong to the key"},
		{name: "expired", after: authorityLife + time.Hour, damage: func(*testing.T, string) {}, want: "expired on 2036-02-27"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			open(t, dir, start)
			tt.damage(t, dir)
			before := contents(t, dir)
			_, err := Open(dir, clocktesting.NewFakePassiveClock(start.Add(tt.after)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %q", err)
			}
			if after := contents(t, dir); after != before {
				t.Errorf("the directory was changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

func TestCertificateNeverOutlivesItsAuthority(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, start)
	late := open(t, dir, start.Add(authorityLife-time.Hour))
	pair := must(t, late.Admin)
	if got, limit := parse(t, pair.CertPEM).NotAfter, late.Cluster.Certificate.NotAfter; got.After(limit) {
		t.Errorf("expires %v, the CA expires %v", got, limit)
	}
}

func TestExpiredAuthoritySignsNothing(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	p, err := Open(t.TempDir(), clock)
	if err != nil {
		t.Fatal(err)
	}
	clock.SetTime(start.Add(authorityLife + time.Hour))
	if _, err := p.Admin(); err == nil || !strings.Contains(err.Error(), "the signer has expired") {
		t.Errorf("error %v", err)
	}
}

func TestFileName(t *testing.T) {
	if got := fileName("node-1.example.com"); got != "node-1.example.com" {
		t.Errorf("a node's name became %q", got)
	}
	seen := map[string]string{}
	for _, name := range []string{"../../etc/passwd", "..", "", "system:kube-proxy", "system:kube-scheduler", "A", "a"} {
		got := fileName(name)
		if filepath.Base("x-"+got) != "x-"+got {
			t.Errorf("fileName(%q) = %q leaves the directory", name, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q share the file %q", name, other, got)
		}
		seen[got] = name
	}
}

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, start)
	admin := must(t, p.Admin)
	path := filepath.Join(dir, "sub", "kubeconfig")
	k := Kubeconfig{Name: "kindred", Server: "https://127.0.0.1:6443", CA: p.Cluster.CertPEM, User: "admin", Credentials: admin}
	for range 2 {
		if err := k.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v; want 0600", info.Mode(), err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != k.Server || !bytes.Equal(config.CAData, k.CA) || !bytes.Equal(config.CertData, admin.CertPEM) || !bytes.Equal(config.KeyData, admin.KeyPEM) {
		t.Errorf("read back another configuration: %+v", config)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("temporary files left behind: %v", entries)
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(entry.Name() + "\n" + string(data))
	}
	return all.String()
}

func truncate(t *testing.T, file string) {
	t.Helper()
	if err := os.Truncate(file, 10); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
