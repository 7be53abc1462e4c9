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

// Kept is a leaf certificate in use by a process that may run for longer than the
// certificate is good: Renew replaces it in time.
type Kept struct {
	obtain  func() (*Pair, error)
	renewed func(*Pair) error
	// untold is whether renewed has still to hear of the present one.
	untold  bool
	current atomic.Pointer[loaded]
}

type loaded struct {
	pair        *Pair
	certificate tls.Certificate
}

// Keep obtains a certificate and remembers to renew it. The function renewed, if any,
// is told of each one that takes the place of another.
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

// Renew asks anew for each certificate that is kept, which gives another one when the
// present one has aged. Where that fails, the present one stays in use.
func (p *PKI) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, k := range p.kept {
		errs = append(errs, k.renew())
	}
	return errors.Join(errs...)
}

// Pair is the certificate as it is now.
func (k *Kept) Pair() *Pair { return k.current.Load().pair }

// TLS is the same in the form that crypto/tls wants.
func (k *Kept) TLS() *tls.Certificate { return &k.current.Load().certificate }

func (k *Kept) renew() error {
	changed, err := k.load()
	if err != nil {
		return fmt.Errorf("renew certificate: %w", err)
	}
	k.untold = k.untold || changed
	if !k.untold || k.renewed == nil {
		return nil
	}
	if err := k.renewed(k.Pair()); err != nil {
		return err
	}
	k.untold = false
	return nil
}

// load takes what obtain gives into use, and reports whether it is another one.
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
