// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testissuer is an OpenID issuer for tests: a server on loopback with discovery and keys,
// which signs tokens.
package testissuer

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// Issuer is an issuer that is stopped at the end of its test.
type Issuer struct {
	// URL is the issuer in tokens.
	URL string
	// CA is the authority of its certificate, in PEM; CAFile is a file with the same.
	CA, CAFile string

	key *rsa.PrivateKey
}

// New starts an issuer.
func New(t *testing.T) *Issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	i.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(i.CAFile, []byte(i.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// Sign returns a token with these claims and the issuer's URL.
func (i *Issuer) Sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := jwt.MapClaims{"iss": i.URL}
	for name, value := range claims {
		all[name] = value
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, all)
	token.Header["kid"] = "1"
	signed, err := token.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}
