// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kindred-project/kindred/internal/storage"
)

// TestEncryption: the configured resources, built-in and custom, CRDs and APIServices are encrypted
// in etcd, and clients of the API see no difference.
func TestEncryption(t *testing.T) {
	e := storage.Encryption{File: filepath.Join(t.TempDir(), "encryption.yaml")}
	const configuration = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, events, things.encrypted.example, customresourcedefinitions.apiextensions.k8s.io, apiservices.apiregistration.k8s.io]
  providers: [{secretbox: {keys: [{name: one, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}}, {identity: {}}]
`
	if err := os.WriteFile(e.File, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	s := own(t, func(c *Config) { c.Encryption = e })
	create := func(path, body string) {
		t.Helper()
		err := within(10*time.Second, func() error {
			if got := s.do(t, s.admin, http.MethodPost, path, body); got.code != http.StatusCreated {
				return fmt.Errorf("%s: %d %s", path, got.code, got.body)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.encrypted.example"},
		"spec":{"group":"encrypted.example","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	create("/apis/encrypted.example/v1/namespaces/default/things", `{"apiVersion":"encrypted.example/v1","kind":"Thing","metadata":{"name":"one"},"value":"watchword"}`)
	create("/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one"},"stringData":{"value":"watchword"}}`)
	create("/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"value":"watchword"}}`)
	const event = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"one","namespace":"default"},"involvedObject":{"namespace":"default"},"reason":"watchword"}`
	create("/api/v1/namespaces/default/events", event)

	for key, encrypted := range map[string]bool{
		"/registry/encrypted.example/things/default/one":                                    true,
		"/registry/secrets/default/one":                                                     true,
		"/registry/events/default/one":                                                      true,
		"/registry/apiextensions.k8s.io/customresourcedefinitions/things.encrypted.example": true,
		"/registry/apiregistration.k8s.io/apiservices/v1.":                                  true,
		"/registry/configmaps/default/one":                                                  false,
	} {
		found, err := s.backend.Client().Get(t.Context(), key, clientv3.WithLimit(1))
		if err != nil || len(found.Kvs) != 1 {
			t.Errorf("%s: %v, %v", key, found, err)
			continue
		}
		stored := string(found.Kvs[0].Value)
		if got := strings.HasPrefix(stored, "k8s:enc:secretbox:v1:one:"); got != encrypted {
			t.Errorf("%s is stored as %.40q", key, stored)
		}
		if encrypted && strings.Contains(stored, "watchword") {
			t.Errorf("%s is stored in plain", key)
		}
	}
	for _, path := range []string{
		"/apis/encrypted.example/v1/namespaces/default/things/one", "/api/v1/namespaces/default/configmaps/one", "/api/v1/namespaces/default/events",
		"/api/v1/namespaces/default/events/one", "/apis/events.k8s.io/v1/namespaces/default/events/one", "/apis/encrypted.example/v1/things",
	} {
		if got := s.do(t, s.admin, http.MethodGet, path, ""); got.code != http.StatusOK || !strings.Contains(got.body, "watchword") {
			t.Errorf("%s: %d %.200s", path, got.code, got.body)
		}
	}
}
