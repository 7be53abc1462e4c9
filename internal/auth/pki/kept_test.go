// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestKeptCertificatesAreRenewedInTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	clock := clocktesting.NewFakePassiveClock(start)
	p, err := Open(dir, clock)
	if err != nil {
		t.Fatal(err)
	}
	var renewals [][]byte
	kept, err := p.Keep(func() (*Pair, error) { return p.APIServer(serverNames) }, func(pair *Pair) error {
		renewals = append(renewals, pair.CertPEM)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first := kept.Pair()
	renew := func(after time.Duration, want int) {
		t.Helper()
		clock.SetTime(start.Add(after))
		if err := p.Renew(); err != nil {
			t.Fatal(err)
		}
		if len(renewals) != want {
			t.Errorf("after %v: renewed %d times, want %d", after, len(renewals), want)
		}
	}
	renew(leafLife/2, 0)
	if kept.Pair() != first {
		t.Error("renewed too early")
	}
	renew(leafLife*3/4, 1)
	renew(leafLife*3/4, 1)
	renewed := kept.Pair()
	if bytes.Equal(renewed.CertPEM, first.CertPEM) || !bytes.Equal(renewed.CertPEM, renewals[0]) || !bytes.Equal(kept.TLS().Certificate[0], parse(t, renewed.CertPEM).Raw) {
		t.Error("the certificate in use is not the renewed one")
	}
	if stored, err := os.ReadFile(renewed.CertFile); err != nil || !bytes.Equal(stored, renewed.CertPEM) {
		t.Errorf("another certificate is stored: %v", err)
	}

	// If no new certificate can be stored, the current one stays.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := p.Renew(); err == nil || kept.Pair() != renewed {
		t.Errorf("without a directory: %v", err)
	}
}

func TestKeepingNothingFails(t *testing.T) {
	p := open(t, t.TempDir(), start)
	none := errors.New("none")
	if _, err := p.Keep(func() (*Pair, error) { return nil, none }, nil); !errors.Is(err, none) {
		t.Errorf("error %v", err)
	}
	if err := p.Renew(); err != nil {
		t.Errorf("a certificate that could not be obtained is renewed: %v", err)
	}
}

// TestRenewedIsRetried: if a kubeconfig could not be written once, it must not stay unchanged until
// its certificate expires.
func TestRenewedIsRetried(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	p, err := Open(filepath.Join(t.TempDir(), "pki"), clock)
	if err != nil {
		t.Fatal(err)
	}
	full, calls := errors.New("no space left on device"), 0
	_, err = p.Keep(func() (*Pair, error) { return p.APIServer(serverNames) }, func(*Pair) error {
		calls++
		if calls == 1 {
			return full
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	clock.SetTime(start.Add(leafLife - time.Hour))
	if err := p.Renew(); !errors.Is(err, full) {
		t.Errorf("the first time: %v", err)
	}
	for range 2 {
		if err := p.Renew(); err != nil || calls != 2 {
			t.Errorf("the second time: %v, %d calls", err, calls)
		}
	}
}
