// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"k8s.io/client-go/util/keyutil"

	"github.com/kindred-project/kindred/internal/durable"
)

// Names are the names and addresses in a serving certificate.
type Names struct {
	DNS []string
	IPs []net.IP
}

// Pair is a leaf certificate with its key.
type Pair struct {
	CertPEM, KeyPEM   []byte
	CertFile, KeyFile string
}

// TLS returns the pair for crypto/tls.
func (p *Pair) TLS() (tls.Certificate, error) {
	return tls.X509KeyPair(p.CertPEM, p.KeyPEM)
}

// leaf describes a certificate. A stored one is used again only if it matches.
type leaf struct {
	file    string
	subject pkix.Name
	usages  []x509.ExtKeyUsage
	names   Names
}

// obtain returns the stored certificate for l if it is usable, or a new one.
func (a *Authority) obtain(dir string, l leaf) (*Pair, error) {
	pair := &Pair{
		CertFile: filepath.Join(dir, l.file+".crt"),
		KeyFile:  filepath.Join(dir, l.file+".key"),
	}
	l.names = l.names.normalized()
	if a.loadUsable(pair, l) {
		return pair, nil
	}
	return pair, a.issue(pair, l)
}

// loadUsable reads a stored pair and reports whether it may be used again. An unreadable or damaged
// pair is not an error: it is replaced.
func (a *Authority) loadUsable(pair *Pair, l leaf) bool {
	stored, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil || stored.Leaf == nil {
		return false
	}
	c := stored.Leaf
	now := a.clock.Now()
	life := c.NotAfter.Sub(c.NotBefore)
	if now.Before(c.NotBefore) || c.NotAfter.Sub(now) < life/3 {
		return false
	}
	if c.CheckSignatureFrom(a.Certificate) != nil {
		return false
	}
	actual := Names{DNS: c.DNSNames, IPs: c.IPAddresses}.normalized()
	if c.Subject.String() != l.subject.String() || !slices.Equal(c.ExtKeyUsage, l.usages) || !actual.equal(l.names) {
		return false
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(stored.PrivateKey)
	if err != nil {
		return false
	}
	pair.CertPEM, pair.KeyPEM = encodeCertificate(c), key
	return true
}

func (a *Authority) issue(pair *Pair, l leaf) error {
	key, encoded, err := newKey()
	if err != nil {
		return err
	}
	certificate, err := a.Sign(&x509.Certificate{
		Subject:     l.subject,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: l.usages,
		DNSNames:    l.names.DNS,
		IPAddresses: l.names.IPs,
	}, key.Public())
	if err != nil {
		return err
	}
	pair.CertPEM, pair.KeyPEM = encodeCertificate(certificate), encoded
	// A crash between the two writes leaves a pair that does not match, and power loss may
	// leave either file empty: loadUsable refuses both, and a new pair is issued.
	if err := durable.WriteCache(pair.KeyFile, pair.KeyPEM, private); err != nil {
		return fmt.Errorf("store key of %q: %w", l.subject.CommonName, err)
	}
	if err := durable.WriteCache(pair.CertFile, pair.CertPEM, private); err != nil {
		return fmt.Errorf("store certificate of %q: %w", l.subject.CommonName, err)
	}
	return nil
}

// normalized returns the names sorted and without duplicates, IPv4 addresses
// in their short form, so that equal sets compare equal.
func (n Names) normalized() Names {
	dns := slices.Clone(n.DNS)
	slices.Sort(dns)
	ips := make([]net.IP, 0, len(n.IPs))
	for _, ip := range n.IPs {
		if short := ip.To4(); short != nil {
			ip = short
		}
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, func(a, b net.IP) int { return slices.Compare(a, b) })
	return Names{DNS: slices.Compact(dns), IPs: slices.CompactFunc(ips, net.IP.Equal)}
}

func (n Names) equal(other Names) bool {
	return slices.Equal(n.DNS, other.DNS) && slices.EqualFunc(n.IPs, other.IPs, net.IP.Equal)
}
