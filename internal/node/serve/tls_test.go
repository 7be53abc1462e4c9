// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"

	"github.com/kindred-project/kindred/internal/node/config"
)

// TestTLSLimits: the server accepts the versions, cipher suites and key exchange mechanisms of its configuration only.
func TestTLSLimits(t *testing.T) {
	f := newFixture(t)
	own := f.ca.issue(t, pkix.Name{CommonName: "node"}, x509.ExtKeyUsageServerAuth)
	for _, test := range []struct {
		name   string
		change func(c *config.Configuration)
		client *tls.Config // nil for one without limits
		fails  bool
	}{
		{name: "TLS 1.2 by default", client: &tls.Config{MaxVersion: tls.VersionTLS12}},
		{name: "not TLS 1.1 by default", client: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, fails: true},
		{
			name: "TLS 1.1", change: func(c *config.Configuration) { c.TLSMinVersion = "VersionTLS11" },
			client: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		},
		{
			name: "not TLS 1.2", change: func(c *config.Configuration) { c.TLSMinVersion = "VersionTLS13" },
			client: &tls.Config{MaxVersion: tls.VersionTLS12}, fails: true,
		},
		{name: "TLS 1.3", change: func(c *config.Configuration) { c.TLSMinVersion = "VersionTLS13" }},
		{
			name: "a cipher suite", change: func(c *config.Configuration) { c.TLSCipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"} },
			client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}},
		},
		{
			name: "another cipher suite", change: func(c *config.Configuration) { c.TLSCipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"} },
			client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}, fails: true,
		},
		{
			name: "a curve", change: func(c *config.Configuration) { c.TLSCurvePreferences = []int32{int32(tls.CurveP384)} },
			client: &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}},
		},
		{
			name: "another curve", change: func(c *config.Configuration) { c.TLSCurvePreferences = []int32{int32(tls.CurveP384)} },
			client: &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}, fails: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config.Default()
			if test.change != nil {
				test.change(c)
			}
			limits, err := TLSConfig(&c.KubeletConfiguration, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil })
			if err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- f.handler.Serve(ctx, listener, limits) }()
			client := &tls.Config{}
			if test.client != nil {
				client = test.client
			}
			client.RootCAs = f.ca.pool()
			connection, err := tls.Dial("tcp", listener.Addr().String(), client)
			if (err != nil) != test.fails {
				t.Errorf("handshake: %v, want failure %t", err, test.fails)
			}
			if err == nil {
				_ = connection.Close()
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTLSConfigErrors(t *testing.T) {
	c := config.Default()
	c.TLSMinVersion = "new"
	if _, err := TLSConfig(&c.KubeletConfiguration, nil); err == nil {
		t.Error("an unknown version is no error")
	}
}
