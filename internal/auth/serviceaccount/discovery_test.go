// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestDiscovery(t *testing.T) {
	former := newKey(t)
	key := newKey(t)
	d, err := NewDiscovery(DefaultIssuerURL, "10.0.0.1:6443", newKeys(t, key, &former.PublicKey))
	if err != nil {
		t.Fatal(err)
	}

	answer := httptest.NewRecorder()
	d.Configuration(answer, httptest.NewRequest(http.MethodGet, ConfigurationPath, nil))
	want := `{"issuer":"https://kubernetes.default.svc.cluster.local","jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks",` +
		`"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}`
	if answer.Body.String() != want || answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("configuration: %v %s", answer.Header(), answer.Body)
	}

	answer = httptest.NewRecorder()
	d.KeySet(answer, httptest.NewRequest(http.MethodGet, KeySetPath, nil))
	if answer.Header().Get("Content-Type") != "application/jwk-set+json" || answer.Header().Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("headers %v", answer.Header())
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(answer.Body.Bytes(), &set); err != nil {
		t.Fatal(err)
	}
	for i, public := range []*ecdsa.PublicKey{&key.PublicKey, &former.PublicKey} {
		k := set.Keys[i]
		id, err := keyID(public)
		if err != nil {
			t.Fatal(err)
		}
		if k["kid"] != id || k["kty"] != "EC" || k["crv"] != "P-256" || k["alg"] != "ES256" || k["use"] != "sig" {
			t.Errorf("key %d: %v", i, k)
		}
		point := []byte{4}
		for _, half := range []string{k["x"], k["y"]} {
			b, err := base64.RawURLEncoding.DecodeString(half)
			if err != nil || len(b) != 32 {
				t.Fatalf("key %d: coordinate %q: %v", i, half, err)
			}
			point = append(point, b...)
		}
		read, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
		if err != nil || !read.Equal(public) {
			t.Errorf("key %d differs (%v)", i, err)
		}
	}

	answer = httptest.NewRecorder()
	d.KeySet(answer, httptest.NewRequest(http.MethodPost, KeySetPath, nil))
	if answer.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", answer.Code)
	}
}
