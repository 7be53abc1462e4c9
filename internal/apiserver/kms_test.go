// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/storage"
)

// vault is a KMS v2 plugin. It encrypts with a key of its own.
type vault struct {
	key       cipher.AEAD
	decrypted atomic.Int32
}

var _ service.Service = &vault{}

const vaultKey = "vault-key-1"

func newVault(t *testing.T) *vault {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return &vault{key: aead}
}

func (v *vault) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: vaultKey}, nil
}

func (v *vault) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	return &service.EncryptResponse{Ciphertext: v.key.Seal(nil, nil, data, nil), KeyID: vaultKey}, nil
}

func (v *vault) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	if r.KeyID != vaultKey {
		return nil, errors.New("an unknown key")
	}
	v.decrypted.Add(1)
	return v.key.Open(nil, nil, r.Ciphertext, nil)
}

// serve serves on a socket until stop is called.
func (v *vault) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	plugin := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(plugin, service.NewGRPCService(socket, time.Second, v))
	stopped := make(chan error, 1)
	go func() { stopped <- plugin.Serve(listener) }()
	return func() {
		plugin.Stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// encryptSecrets configures a KMS plugin for Secrets.
func encryptSecrets(t *testing.T, socket string) func(*Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	content := fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{kms: {apiVersion: v2, name: vault, endpoint: "unix://%s", timeout: 1s}}, {identity: {}}]
`, socket)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Encryption.File = file }
}

// TestKMS: a Secret is encrypted with a key of the plugin, before and after a restart. Health
// checks include the plugin, and without it the server does not start.
func TestKMS(t *testing.T) {
	dir := t.TempDir()
	backend, err := storage.Embedded(t.Context(), filepath.Join(dir, "etcd"), clock.RealClock{}, storage.DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	socket := filepath.Join(dir, "kms.sock")
	encrypted := encryptSecrets(t, socket)
	during := func(body func(*testServer)) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := boot(ctx, dir, backend, encrypted)
		if s != nil {
			defer func() { cancel(); <-s.stopped }()
		}
		if err != nil {
			t.Fatal(err)
		}
		body(s)
	}
	const path = "/api/v1/namespaces/default/secrets"
	v := newVault(t)
	stop := v.serve(t, socket)

	during(func(s *testServer) {
		if got := s.do(t, s.admin, http.MethodPost, path, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one"},"stringData":{"value":"watchword"}}`); got.code != http.StatusCreated {
			t.Fatalf("%d %s", got.code, got.body)
		}
		found, err := backend.Client().Get(t.Context(), "/registry/secrets/default/one")
		if err != nil || len(found.Kvs) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		if stored := string(found.Kvs[0].Value); !strings.HasPrefix(stored, "k8s:enc:kms:v2:vault:") || strings.Contains(stored, "watchword") {
			t.Errorf("the Secret is stored as %.60q", stored)
		}
		for path, code := range map[string]int{
			"/healthz/kms-providers": http.StatusOK,
			"/readyz/kms-providers":  http.StatusOK,
			// Restarting the server does not repair a plugin, so /livez excludes it.
			"/livez/kms-providers": http.StatusNotFound,
		} {
			if got := s.do(t, s.admin, http.MethodGet, path, ""); got.code != code {
				t.Errorf("%s: %d %s", path, got.code, got.body)
			}
		}
	})
	if n := v.decrypted.Load(); n != 0 {
		t.Errorf("the plugin got %d requests for a cached key", n)
	}
	during(func(s *testServer) {
		if got := s.do(t, s.admin, http.MethodGet, path+"/one", ""); got.code != http.StatusOK || !strings.Contains(got.body, "d2F0Y2h3b3Jk") { // watchword
			t.Errorf("%d %s", got.code, got.body)
		}
	})
	if v.decrypted.Load() == 0 {
		t.Error("the Secret was read without its key")
	}

	stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = boot(ctx, dir, backend, encrypted)
	t.Logf("without the plugin: %v", err)
	if err == nil || !strings.Contains(err.Error(), "KMS plugin") || !strings.Contains(err.Error(), socket) {
		t.Errorf("without the plugin: %v", err)
	}
}
