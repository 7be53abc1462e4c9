// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/auth/pki"
)

func TestCertificatesAreCached(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	certificate := func(raw string) *x509.Certificate {
		return &x509.Certificate{Raw: []byte(raw), NotAfter: now.Add(15 * time.Second)}
	}
	jane, bad, intermediate := certificate("jane"), certificate("bad"), certificate("intermediate")
	for _, test := range []struct {
		what     string
		first    []*x509.Certificate
		after    time.Duration
		second   []*x509.Certificate
		verified int
	}{
		{"the same again", []*x509.Certificate{jane}, time.Second, []*x509.Certificate{jane}, 1},
		{"the same much later", []*x509.Certificate{jane}, certificateCacheTTL + time.Second, []*x509.Certificate{jane}, 2},
		{"another", []*x509.Certificate{jane}, 0, []*x509.Certificate{intermediate}, 2},
		{"the same with another chain", []*x509.Certificate{jane, intermediate}, 0, []*x509.Certificate{jane}, 2},
		{"a refused certificate", []*x509.Certificate{bad}, 0, []*x509.Certificate{bad}, 2},
		{"none", nil, 0, nil, 2},
	} {
		verified := 0
		clock := testingclock.NewFakeClock(now)
		auth := rememberCertificates(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			verified++
			if len(req.TLS.PeerCertificates) == 0 || req.TLS.PeerCertificates[0] == bad {
				return nil, false, errors.New("unknown authority")
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: string(req.TLS.PeerCertificates[0].Raw)}}, true, nil
		}), clock)
		ask := func(chain []*x509.Certificate) {
			response, ok, _ := auth.AuthenticateRequest(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: chain}})
			known := len(chain) > 0 && chain[0] != bad
			if ok != known || known && response.User.GetName() != string(chain[0].Raw) {
				t.Errorf("%s: answered %v, %v", test.what, response, ok)
			}
		}
		ask(test.first)
		clock.Step(test.after)
		ask(test.second)
		if verified != test.verified {
			t.Errorf("%s: verified %d times, want %d", test.what, verified, test.verified)
		}
	}
}

func TestExpiredCertificatesAreRefused(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := testingclock.NewFakeClock(now)
	end := now.Add(3 * time.Second)
	auth := rememberCertificates(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{}, clock.Now().Before(end), nil
	}), clock)
	req := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("jane"), NotAfter: end}}}}
	if _, ok, _ := auth.AuthenticateRequest(req); !ok {
		t.Fatal("a certificate was refused before it expired")
	}
	clock.Step(3*time.Second + time.Millisecond)
	if _, ok, _ := auth.AuthenticateRequest(req); ok {
		t.Error("a certificate was accepted after it expired")
	}
}

func TestRenewedCertificateIsServedAtOnce(t *testing.T) {
	shown := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(server.url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := shown()
	pair, err := server.keys.APIServer(pki.Names{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pair.CertFile); err != nil {
		t.Fatal(err)
	}
	if err := server.keys.Renew(); err != nil {
		t.Fatal(err)
	}
	err = within(10*time.Second, func() error {
		if shown() == before {
			return errors.New("still the former certificate")
		}
		return server.ready()
	})
	if err != nil {
		t.Error(err)
	}
}
