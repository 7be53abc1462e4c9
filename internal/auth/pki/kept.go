// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
)

// Kept is a leaf certificate in use by a process that may outlive it. Renew replaces it in time.
type Kept struct {
	obtain  func() (*Pair, error)
	renewed func(*Pair) error
	// pending is set until renewed has succeeded for the current certificate.
	pending bool
	current atomic.Pointer[loaded]
}

type loaded struct {
	pair        *Pair
	certificate tls.Certificate
}

// Keep obtains a certificate, which Renew renews. The function renewed, if it is not nil, is called
// with each certificate that replaces another.
func (p *PKI) Keep(obtain func() (*Pair, error), renewed func(*Pair) error) (*Kept, error) {
	k := &Kept{obtain: obtain, renewed: renewed}
	if _, err := k.load(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, k)
	return k, nil
}

// Renew obtains each kept certificate again, which returns a new one if the current one is old. On
// error the current one stays in use.
func (p *PKI) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, k := range p.kept {
		errs = append(errs, k.renew())
	}
	return errors.Join(errs...)
}

// Pair returns the current certificate.
func (k *Kept) Pair() *Pair { return k.current.Load().pair }

// TLS returns the current certificate for crypto/tls.
func (k *Kept) TLS() *tls.Certificate { return &k.current.Load().certificate }

func (k *Kept) renew() error {
	changed, err := k.load()
	if err != nil {
		return fmt.Errorf("renew certificate: %w", err)
	}
	k.pending = k.pending || changed
	if !k.pending || k.renewed == nil {
		return nil
	}
	if err := k.renewed(k.Pair()); err != nil {
		return err
	}
	k.pending = false
	return nil
}

// load uses the certificate that obtain returns, and reports whether it is a new one.
func (k *Kept) load() (changed bool, err error) {
	pair, err := k.obtain()
	if err != nil {
		return false, err
	}
	if now := k.current.Load(); now != nil && bytes.Equal(now.pair.CertPEM, pair.CertPEM) {
		return false, nil
	}
	certificate, err := pair.TLS()
	if err != nil {
		return false, err
	}
	k.current.Store(&loaded{pair, certificate})
	return true, nil
}
