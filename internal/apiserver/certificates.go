// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/sha256"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"
)

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
