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
	var told [][]byte
	kept, err := p.Keep(func() (*Pair, error) { return p.APIServer(serverNames) }, func(pair *Pair) error {
		told = append(told, pair.CertPEM)
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
		if len(told) != want {
			t.Errorf("after %v: renewed %d times, want %d", after, len(told), want)
		}
	}
	renew(leafLife/2, 0)
	if kept.Pair() != first {
		t.Error("replaced before its time")
	}
	renew(leafLife*3/4, 1)
	renew(leafLife*3/4, 1)
	renewed := kept.Pair()
	if bytes.Equal(renewed.CertPEM, first.CertPEM) || !bytes.Equal(renewed.CertPEM, told[0]) || !bytes.Equal(kept.TLS().Certificate[0], parse(t, renewed.CertPEM).Raw) {
		t.Error("the certificate in use is not the renewed one")
	}
	if stored, err := os.ReadFile(renewed.CertFile); err != nil || !bytes.Equal(stored, renewed.CertPEM) {
		t.Errorf("stored is another one: %v", err)
	}

	// Where no new one can be stored, the present one stays.
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
		t.Errorf("what was never kept is renewed: %v", err)
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
	full, told := errors.New("no space left on device"), 0
	_, err = p.Keep(func() (*Pair, error) { return p.APIServer(serverNames) }, func(*Pair) error {
		told++
		if told == 1 {
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
		if err := p.Renew(); err != nil || told != 2 {
			t.Errorf("then: %v, told %d times", err, told)
		}
	}
}
