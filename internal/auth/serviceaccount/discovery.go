// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
)

// The paths of the issuer's OpenID Connect configuration and of its keys.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeySetPath        = "/openid/v1/jwks"
)

// Discovery serves the two documents, which do not change while the server runs.
type Discovery struct {
	configuration, keySet []byte
}

// provider is the part of the OpenID provider metadata (OpenID Connect Discovery 1.0, section 3)
// that verifiers of tokens need.
type provider struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// jsonWebKey is a public key on P-256 (RFC 7518 section 6.2).
type jsonWebKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// NewDiscovery returns the documents of an issuer, for clients that reach this server at the given
// address ("host:port").
func NewDiscovery(issuer, address string, keys *Keys) (*Discovery, error) {
	configuration, err := json.Marshal(provider{
		Issuer:        issuer,
		JWKSURI:       "https://" + address + KeySetPath,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		Algorithms:    []string{"ES256"},
	})
	if err != nil {
		return nil, fmt.Errorf("describe token issuer: %w", err)
	}
	set := struct {
		Keys []jsonWebKey `json:"keys"`
	}{}
	for _, k := range keys.all {
		point, err := k.key.Bytes()
		if err != nil {
			return nil, fmt.Errorf("describe token key: %w", err)
		}
		// An uncompressed point is 4, x, y (SEC 1, section 2.3.3).
		half := (len(point) - 1) / 2
		set.Keys = append(set.Keys, jsonWebKey{
			Use: "sig", Type: "EC", ID: k.id, Curve: "P-256", Algorithm: "ES256",
			X: base64.RawURLEncoding.EncodeToString(point[1 : 1+half]),
			Y: base64.RawURLEncoding.EncodeToString(point[1+half:]),
		})
	}
	keySet, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("describe token keys: %w", err)
	}
	return &Discovery{configuration: configuration, keySet: keySet}, nil
}

// Configuration serves ConfigurationPath.
func (d *Discovery) Configuration(w http.ResponseWriter, r *http.Request) {
	serve(w, r, "application/json", d.configuration)
}

// KeySet serves KeySetPath (media type: RFC 7517 section 8.5.1).
func (d *Discovery) KeySet(w http.ResponseWriter, r *http.Request) {
	serve(w, r, "application/jwk-set+json", d.keySet)
}

func serve(w http.ResponseWriter, r *http.Request, mediaType string, body []byte) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	// An error means that the client has disconnected.
	_, _ = w.Write(body)
}
