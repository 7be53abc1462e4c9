// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		registry, image string
		want            bool
	}{
		{"registry.test", "registry.test/app", true},
		{"https://registry.test/v2/", "registry.test/app", true},
		{"https://registry.test/v1/team", "registry.test/team/app:1", true},
		{"registry.test/other", "registry.test/team/app", false},
		{"registry.test:5000", "registry.test/app", false},
		{"registry.test:5000", "registry.test:5000/app", true},
		{"*.test", "registry.test/app", true},
		{"*.test", "a.registry.test/app", false},
		{"test", "registry.test/app", false},
		{"https://index.docker.io/v1/", "busybox", true},
		{"docker.io", "library/busybox", true},
		{"https://index.docker.io/v1/", "quay.io/a/b", false},
	} {
		k := &keyring{entries: []entry{{pattern: patternOf(tc.registry)}}}
		if got := len(k.lookup(tc.image)) == 1; got != tc.want {
			t.Errorf("%s for %s: %v", tc.registry, tc.image, got)
		}
	}
}

func TestParseSecret(t *testing.T) {
	for _, tc := range []struct {
		name   string
		secret v1.Secret
		want   string
		bad    bool
	}{
		{name: "plain", secret: *pullSecret("s", "1", "p"), want: "u:p"},
		{name: "auth", want: "me:pass:word", secret: v1.Secret{Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"r":{"auth":"bWU6cGFzczp3b3Jk"}}}`)}}},
		{name: "padded auth", want: "me:x", secret: v1.Secret{Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"r":{"auth":"bWU6eA=="}}}`)}}},
		{name: "old format", want: "a:b", secret: v1.Secret{Type: v1.SecretTypeDockercfg,
			Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"r":{"username":"a","password":"b"}}`)}}},
		{name: "not json", bad: true, secret: v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`x`)}}},
		{name: "auth without colon", bad: true, secret: v1.Secret{Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"r":{"auth":"bWU="}}}`)}}},
		{name: "another type", secret: v1.Secret{Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`x`)}}},
	} {
		entries, err := parseSecret(&tc.secret)
		if (err != nil) != tc.bad {
			t.Errorf("%s: %v", tc.name, err)
		}
		got := ""
		if len(entries) == 1 {
			got = entries[0].auth.Username + ":" + entries[0].auth.Password
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
