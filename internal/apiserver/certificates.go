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

// servingCertificate is what the server shows: always the one in use now.
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

// AddListener is called while the server is set up.
func (s *servingCertificate) AddListener(listener dynamiccertificates.Listener) {
	s.listeners = append(s.listeners, listener)
}

func (s *servingCertificate) Name() string { return "serving" }

func (s *servingCertificate) CurrentCertKeyContent() ([]byte, []byte) {
	pair := s.kept.Pair()
	return pair.CertPEM, pair.KeyPEM
}

const (
	// certificateCacheTTL is how long a verified certificate is believed without
	// verifying it again, as tokenCacheTTL is for tokens.
	certificateCacheTTL = 10 * time.Second
	// certificateCacheSize is how many certificates are remembered.
	certificateCacheSize = 1024
)

// rememberCertificates saves verifying the same certificate for each request of
// a connection, and the signature with it: a tenth of what a small write costs.
// The handshake has proved that the client holds the key; the authority cannot
// change while the process runs; and nobody is believed after the certificate's
// end, by the clock that certificates are verified with. Refusals are not
// remembered.
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

// chainKey identifies all that a client has shown: a certificate may only be
// valid thanks to the intermediate ones that came with it.
func chainKey(req *http.Request) [sha256.Size]byte {
	h := sha256.New()
	for _, certificate := range req.TLS.PeerCertificates {
		h.Write(certificate.Raw) // DER says how long it is
	}
	return [sha256.Size]byte(h.Sum(nil))
}
