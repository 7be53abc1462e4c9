// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sharedKeys are the files that "kindred up --authorities" reads.
var sharedKeys = []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"}

// TestOwnAuthorities: a cluster starts with keys from a directory, so that who trusts them trusts it; its certificate has further names, and
// its nodes get ranges of the given one. Incomplete keys are refused, and nothing is kept of them.
func TestOwnAuthorities(t *testing.T) {
	first := ownCluster(t, "--no-node")
	keys := t.TempDir()
	for _, name := range sharedKeys {
		content, err := os.ReadFile(filepath.Join(first.dir, "pki", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(keys, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	incomplete := t.TempDir()
	refused := stoppedCluster(t, "")
	if r := refused.run("up", "--no-node", "--secure-port", "0", "--authorities", incomplete); r.code == 0 || !strings.Contains(r.err, "the authorities of the cluster") {
		t.Errorf("up without keys: %d\n%s%s", r.code, r.out, r.err)
	}
	second := stoppedCluster(t, "")
	second.mustStart(t, "--no-node", "--authorities", keys, "--tls-san", "api.example.com,192.0.2.7", "--cluster-cidr", "10.251.0.0/16")
	ca, err := os.ReadFile(filepath.Join(keys, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	address := strings.TrimPrefix(second.config(t).Host, "https://")
	for _, name := range []string{"api.example.com", "192.0.2.7", "kubernetes.default.svc"} {
		connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: name})
		if err != nil {
			t.Errorf("as %s: %v", name, err)
			continue
		}
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
	}
	s := newSession(t, second)
	s.apply("{apiVersion: v1, kind: Node, metadata: {name: other}}")
	s.eventually("the node has a range of the cluster's", func() error {
		if got := s.jsonpath("{.spec.podCIDR}", "node", "other"); got != "10.251.0.0/24" {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}
