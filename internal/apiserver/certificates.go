// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/sha256"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
)

// servingCertificate provides the current serving certificate.
type servingCertificate struct {
	kept      *pki.Kept
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = &servingCertificate{}

func newServingCertificate(c Config) (*servingCertificate, error) {
	s := &servingCertificate{}
	var err error
	s.kept, err = c.PKI.Keep(func() (*pki.Pair, error) { return c.PKI.APIServer(c.Names) }, s.renewed)
	return s, err
}

func (s *servingCertificate) renewed(*pki.Pair) error {
	for _, listener := range s.listeners {
		listener.Enqueue()
	}
	return nil
}

// AddListener implements dynamiccertificates.Notifier. It is called before the server runs.
func (s *servingCertificate) AddListener(listener dynamiccertificates.Listener) {
	s.listeners = append(s.listeners, listener)
}

func (s *servingCertificate) Name() string { return "serving" }

func (s *servingCertificate) CurrentCertKeyContent() ([]byte, []byte) {
	pair := s.kept.Pair()
	return pair.CertPEM, pair.KeyPEM
}

const (
	// certificateCacheTTL is the time that the verification of a certificate is cached, as tokenCacheTTL
	// for tokens.
	certificateCacheTTL = 10 * time.Second
	// certificateCacheSize is how many certificates are cached.
	certificateCacheSize = 1024
)

// rememberCertificates caches the verification of client certificates, because verifying the
// signature for each request of a connection is a tenth of the cost of a small write. This is safe:
// the handshake has proved that the client has the key, the authority does not change while the
// process runs, and an expired certificate is refused by the clock that certificates are verified
// with. Refusals are not cached.
func rememberCertificates(next authenticator.Request, c clock.Clock) authenticator.Request {
	known := cache.NewLRUExpireCacheWithClock(certificateCacheSize, c)
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
			return next.AuthenticateRequest(req)
		}
		key := chainKey(req)
		if response, ok := known.Get(key); ok {
			return response.(*authenticator.Response), true, nil
		}
		response, ok, err := next.AuthenticateRequest(req)
		if ok && err == nil {
			left := req.TLS.PeerCertificates[0].NotAfter.Sub(c.Now())
			known.Add(key, response, min(certificateCacheTTL, left))
		}
		return response, ok, err
	})
}

// chainKey identifies all certificates that a client has sent: a certificate may be valid only with
// the intermediate ones.
func chainKey(req *http.Request) [sha256.Size]byte {
	h := sha256.New()
	for _, certificate := range req.TLS.PeerCertificates {
		h.Write(certificate.Raw) // DER contains its length
	}
	return [sha256.Size]byte(h.Sum(nil))
}
