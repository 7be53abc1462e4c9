// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/durable"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// clockSkew is how far the clock of a peer may be behind when it verifies a new certificate.
	clockSkew = 5 * time.Minute

	// private is the mode of every file: only its owner may read it.
	private = 0o600
)

// Authority is a certificate authority: it signs certificates with its key.
type Authority struct {
	// Certificate is the authority's own, self-signed certificate.
	Certificate *x509.Certificate
	// CertPEM is Certificate in PEM: the CA bundle for clients.
	CertPEM []byte
	// CertFile and KeyFile are the paths of the certificate and the key.
	CertFile, KeyFile string

	key   crypto.Signer
	clock clock.PassiveClock
}

// Sign issues a certificate for a public key. The template has the subject and the usages. Sign
// chooses the serial number, and if the validity is unset, it starts now and ends after a year. The
// certificate never outlives the authority.
func (a *Authority) Sign(template *x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	if a.clock.Now().After(a.Certificate.NotAfter) {
		return nil, fmt.Errorf("the signer has expired: NotAfter=%v", a.Certificate.NotAfter)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	signed := *template
	signed.SerialNumber = serial
	if signed.NotBefore.IsZero() {
		signed.NotBefore = a.clock.Now().Add(-clockSkew)
	}
	if signed.NotAfter.IsZero() {
		signed.NotAfter = a.clock.Now().Add(leafLife)
	}
	if signed.NotAfter.After(a.Certificate.NotAfter) {
		signed.NotAfter = a.Certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &signed, a.Certificate, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %q: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

// openAuthority reads <name>.crt and <name>.key in dir, or creates them when
// there is no certificate yet.
func openAuthority(dir, name, commonName string, clock clock.PassiveClock) (*Authority, error) {
	a := &Authority{
		CertFile: filepath.Join(dir, name+".crt"),
		KeyFile:  filepath.Join(dir, name+".key"),
		clock:    clock,
	}
	// The key is written before the certificate. A crash between the two leaves a key alone. It has
	// signed nothing yet, so it is used.
	key, err := openKey(a.KeyFile, a.CertFile)
	if err != nil {
		return nil, err
	}
	a.key = key

	certs, err := cert.CertsFromFile(a.CertFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.create(commonName)
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate authority %s: %w", a.CertFile, err)
	}
	return a, a.adopt(certs[0])
}

func (a *Authority) create(commonName string) error {
	serial, err := newSerial()
	if err != nil {
		return err
	}
	now := a.clock.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("create certificate authority %q: %w", commonName, err)
	}
	if a.Certificate, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	a.CertPEM = encodeCertificate(a.Certificate)
	return durable.WriteFile(a.CertFile, a.CertPEM, private)
}

// adopt uses an authority's certificate from disk. It refuses an unusable one and does not replace
// it, because replacing an authority would disconnect every client.
func (a *Authority) adopt(certificate *x509.Certificate) error {
	if !samePublicKey(certificate.PublicKey, a.key.Public()) {
		return fmt.Errorf("%s does not belong to the key in %s: restore both from the same backup", a.CertFile, a.KeyFile)
	}
	if !certificate.IsCA {
		return fmt.Errorf("%s is not a certificate authority", a.CertFile)
	}
	if a.clock.Now().After(certificate.NotAfter) {
		return fmt.Errorf("the certificate authority %s expired on %s: remove it and its key to create a new one, then replace every kubeconfig",
			a.CertFile, certificate.NotAfter.Format(time.DateOnly))
	}
	a.Certificate = certificate
	a.CertPEM = encodeCertificate(certificate)
	return nil
}

// openKey reads the private key in file. It creates a missing key, unless the file that depends on
// it exists: then the key was lost, and a new key would hide that.
func openKey(file, dependent string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(dependent); err == nil {
			return nil, fmt.Errorf("%s exists but its key %s is missing: restore it from a backup", dependent, file)
		}
		key, encoded, err := newKey()
		if err != nil {
			return nil, err
		}
		return key, durable.WriteFile(file, encoded, private)
	}
	if err != nil {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("read private key %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key %s is a %T: only ECDSA keys are supported", file, parsed)
	}
	return key, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, encoded, nil
}

// newSerial returns a random positive serial number of 127 bits (RFC 5280
// section 4.1.2.2 allows 20 octets and forbids zero).
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func samePublicKey(a, b crypto.PublicKey) bool {
	key, ok := a.(*ecdsa.PublicKey)
	return ok && key.Equal(b)
}

func encodeCertificate(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate.Raw})
}
