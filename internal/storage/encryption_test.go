// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/storage/value"
)

// secret returns a provider's key, which is derived from a letter.
func secret(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// encryptionOf writes a configuration with resources and their providers, in order.
func encryptionOf(t *testing.T, resources string, providers ...string) Encryption {
	t.Helper()
	e := Encryption{File: filepath.Join(t.TempDir(), "encryption.yaml")}
	rewrite(t, e, resources, providers...)
	return e
}

func rewrite(t *testing.T, e Encryption, resources string, providers ...string) {
	t.Helper()
	content := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [%s], providers: [%s]}]\n",
		resources, strings.Join(providers, ", "))
	if err := os.WriteFile(e.File, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// by returns a provider with keys, which are derived from letters.
func by(kind string, letters ...string) string {
	var keys []string
	for _, letter := range letters {
		keys = append(keys, fmt.Sprintf("{name: key-%s, secret: %s}", letter, secret(letter)))
	}
	return fmt.Sprintf("{%s: {keys: [%s]}}", kind, strings.Join(keys, ", "))
}

const none = "{identity: {}}"

// encrypting returns a store with encryption.
func encrypting(t *testing.T, e Encryption) *Backend {
	t.Helper()
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	t.Cleanup(b.Close)
	if _, err := b.Encrypt(t.Context(), e, "test"); err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configMaps = schema.GroupResource{Resource: "configmaps"}
	databases  = schema.GroupResource{Group: "example.com", Resource: "databases"}
	events     = schema.GroupResource{Resource: "events"}
	newEvents  = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	ports      = schema.GroupResource{Resource: "servicenodeportallocations"}
)

// stored returns the bytes in etcd for a value.
func stored(t *testing.T, b *Backend, resource schema.GroupResource) []byte {
	t.Helper()
	got, err := b.transformer(resource).TransformToStorage(t.Context(), []byte("plain"), value.DefaultContext("/registry/key"))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestProviders(t *testing.T) {
	for name, tt := range map[string]struct {
		encryption Encryption
		prefixes   map[schema.GroupResource]string
	}{
		"nothing":   {Encryption{}, map[schema.GroupResource]string{secrets: "plain"}},
		"aescbc":    {encryptionOf(t, "secrets", by("aescbc", "a"), none), map[schema.GroupResource]string{secrets: "k8s:enc:aescbc:v1:key-a:", configMaps: "plain"}},
		"aesgcm":    {encryptionOf(t, "secrets", by("aesgcm", "a"), none), map[schema.GroupResource]string{secrets: "k8s:enc:aesgcm:v1:key-a:", databases: "plain"}},
		"secretbox": {encryptionOf(t, "secrets", by("secretbox", "b", "a")), map[schema.GroupResource]string{secrets: "k8s:enc:secretbox:v1:key-b:"}},
		"identity":  {encryptionOf(t, "secrets", none, by("secretbox", "a")), map[schema.GroupResource]string{secrets: "plain"}},
		"custom":    {encryptionOf(t, "databases.example.com", by("aescbc", "a")), map[schema.GroupResource]string{databases: "k8s:enc:aescbc:", secrets: "plain"}},
		"events":    {encryptionOf(t, "events", by("aescbc", "a")), map[schema.GroupResource]string{events: "k8s:enc:aescbc:", newEvents: "k8s:enc:aescbc:"}},
		"a group":   {encryptionOf(t, "'*.example.com'", by("aescbc", "a")), map[schema.GroupResource]string{databases: "k8s:enc:aescbc:", secrets: "plain"}},
		"all":       {encryptionOf(t, "'*.*'", by("aescbc", "a")), map[schema.GroupResource]string{databases: "k8s:enc:aescbc:", newEvents: "k8s:enc:aescbc:", ports: "plain"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.encryption.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := encrypting(t, tt.encryption)
			for resource, prefix := range tt.prefixes {
				got := stored(t, b, resource)
				if !bytes.HasPrefix(got, []byte(prefix)) || prefix != "plain" && bytes.Contains(got, []byte("plain")) {
					t.Errorf("%s: stored as %q", resource, got)
				}
				back, _, err := b.transformer(resource).TransformFromStorage(t.Context(), got, value.DefaultContext("/registry/key"))
				if err != nil || string(back) != "plain" {
					t.Errorf("%s: read back as %q, %v", resource, back, err)
				}
			}
		})
	}
}

// TestReadable: a wrong key is an error at once.
func TestReadable(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after Encryption
		want          string // the error; "" if the values are readable
	}{
		"never encrypted":                             {Encryption{}, Encryption{}, ""},
		"the same key":                                {encryptionOf(t, "secrets", by("aesgcm", "a")), encryptionOf(t, "secrets", by("aesgcm", "a")), ""},
		"plain before, encrypted now":                 {Encryption{}, encryptionOf(t, "secrets", by("aescbc", "a"), none), ""},
		"encrypted before, plain now":                 {encryptionOf(t, "secrets", by("secretbox", "a")), encryptionOf(t, "secrets", none, by("secretbox", "a")), ""},
		"another key first":                           {encryptionOf(t, "secrets", by("aescbc", "a")), encryptionOf(t, "secrets", by("aescbc", "b", "a")), ""},
		"another provider first":                      {encryptionOf(t, "secrets", by("aescbc", "a")), encryptionOf(t, "secrets", by("secretbox", "b"), by("aescbc", "a")), ""},
		"plain before, without the provider identity": {Encryption{}, encryptionOf(t, "secrets", by("aescbc", "a")), "no matching prefix found): add the key that they were encrypted with"},
		"another key":                                 {encryptionOf(t, "secrets", by("secretbox", "a")), encryptionOf(t, "secrets", by("secretbox", "b"), none), "secrets in etcd cannot be decrypted with "},
		"another key of the same name":                {encryptionOf(t, "secrets", by("aesgcm", "a")), encryptionOf(t, "secrets", strings.ReplaceAll(by("aesgcm", "b"), "key-b", "key-a")), "message authentication failed"},
		"no key":                                      {encryptionOf(t, "secrets", by("aesgcm", "a")), Encryption{}, "secrets in etcd are encrypted (/registry/secrets/ns/one): give the keys with --encryption-provider-config"},
	} {
		t.Run(name, func(t *testing.T) {
			b := encrypting(t, tt.before)
			const key = "/registry/secrets/ns/one"
			content, err := b.transformer(secrets).TransformToStorage(t.Context(), []byte("plain"), value.DefaultContext(key))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Client().Put(t.Context(), key, string(content)); err != nil {
				t.Fatal(err)
			}
			b.transformers = nil
			if _, err := b.Encrypt(t.Context(), tt.after, "test"); err != nil {
				t.Fatal(err)
			}
			err = b.Readable(secrets, "secrets")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err := b.Readable(configMaps, "/configmaps"); err != nil {
				t.Errorf("an unencrypted key that does not exist: %v", err)
			}
		})
	}
}

func TestEncryptionMistakes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tt := range map[string]struct {
		encryption Encryption
		want       string
	}{
		"reload, no file":  {Encryption{Reload: true}, "--encryption-provider-config-automatic-reload is given, but no --encryption-provider-config"},
		"no file":          {Encryption{File: missing}, "--encryption-provider-config " + missing + ": "},
		"no providers":     {encryptionOf(t, "secrets"), "at least one"},
		"a short key":      {encryptionOf(t, "secrets", "{aescbc: {keys: [{name: a, secret: YQ==}]}}"), "secret is not of the expected length"},
		"no base64":        {encryptionOf(t, "secrets", "{aescbc: {keys: [{name: a, secret: '%'}]}}"), "secrets must be base64 encoded"},
		"an unknown field": {encryptionOf(t, "secrets", "{rot13: {}}"), `unknown field "resources[0].providers[0].rot13"`},
		"no KMS plugin":    {encryptionOf(t, "secrets", "{kms: {apiVersion: v2, name: vault, endpoint: 'unix:///does/not/exist', timeout: 100ms}}", none), "a KMS plugin is not healthy, and must be before the cluster starts: kms-provider-0: "},
		"KMS v1":           {encryptionOf(t, "secrets", "{kms: {name: vault, endpoint: 'unix:///does/not/exist'}}", none), "Use KMSv2 instead"},
		"a star":           {encryptionOf(t, "'*'", none), "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.encryption.Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ...%s...", err, tt.want)
			}
		})
	}
}

// TestReload: a changed file takes effect without a restart, and earlier values can still be read.
func TestReload(t *testing.T) {
	before := controller.EncryptionConfigFileChangePollDuration
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond
	t.Cleanup(func() { controller.EncryptionConfigFileChangePollDuration = before })
	e := encryptionOf(t, "secrets", none)
	e.Reload = true
	b := open(t, filepath.Join(t.TempDir(), "etcd"))
	t.Cleanup(b.Close)
	checks, err := b.Encrypt(t.Context(), e, "test")
	if err != nil || len(checks) != 1 || checks[0].Name() != "kms-providers" {
		t.Fatalf("%v, %v", checks, err)
	}
	first := stored(t, b, secrets)
	rewrite(t, e, "secrets", by("aescbc", "a"), none)
	for deadline := time.Now().Add(20 * time.Second); !bytes.HasPrefix(stored(t, b, secrets), []byte("k8s:enc:aescbc:v1:key-a:")); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new configuration is not used")
		}
	}
	if back, _, err := b.transformer(secrets).TransformFromStorage(t.Context(), first, value.DefaultContext("/registry/key")); err != nil || string(back) != "plain" {
		t.Errorf("%q, %v", back, err)
	}
}
