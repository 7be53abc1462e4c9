// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"crypto/tls"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Secret holds confidential data. Its type, which determines the required keys, is immutable.
var Secret = generic.Kind[*corev1.Secret]{
	Name: "Secret", Plural: "secrets",
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *corev1.Secret { return &corev1.Secret{} },
	NewList:        func() runtime.Object { return &corev1.SecretList{} },
	Prepare:        prepareSecret,
	Validate:       validateSecret,
	ValidateUpdate: validateSecretUpdate,
	Warnings:       warnSecret,
	Fields:         map[string]func(*corev1.Secret) string{"type": func(s *corev1.Secret) string { return string(s.Type) }},
	Columns: []generic.Column[*corev1.Secret]{
		{Name: "Type", Description: corev1.Secret{}.SwaggerDoc()["type"], Cell: func(s *corev1.Secret) any { return string(s.Type) }},
		{Name: "Data", Description: corev1.Secret{}.SwaggerDoc()["data"], Cell: func(s *corev1.Secret) any { return len(s.Data) }},
	},
}

// prepareSecret keeps the type where an update names none, as it cannot change.
func prepareSecret(_ context.Context, s, old *corev1.Secret) {
	if old != nil && s.Type == "" {
		s.Type = old.Type
	}
}

// warnSecret warns if a certificate and its key do not match.
func warnSecret(_ context.Context, s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func validateSecret(_ context.Context, c *check.Checker, s *corev1.Secret) {
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		validateDataKey(c, data.Key(key), key)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		c.TooLong(data, corev1.MaxSecretSize)
	}
	validateSecretType(c, s)
}

// validateSecretType checks the keys that a type promises.
func validateSecretType(c *check.Checker, s *corev1.Secret) {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			c.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")
		}
	case corev1.SecretTypeDockercfg:
		requireJSON(c, s, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		requireJSON(c, s, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			requireKeys(c, s, corev1.BasicAuthUsernameKey)
			requireKeys(c, s, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			c.Required(field.NewPath("data").Key(corev1.SSHAuthPrivateKey), "")
		}
	case corev1.SecretTypeTLS:
		requireKeys(c, s, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
}

func requireKeys(c *check.Checker, s *corev1.Secret, keys ...string) {
	for _, key := range keys {
		if _, ok := s.Data[key]; !ok {
			c.Required(field.NewPath("data").Key(key), "")
		}
	}
}

func requireJSON(c *check.Checker, s *corev1.Secret, key string) {
	path := field.NewPath("data").Key(key)
	value, ok := s.Data[key]
	if !ok {
		c.Required(path, "")
		return
	}
	if err := json.Unmarshal(value, &map[string]any{}); err != nil {
		c.Invalid(path, "<secret contents redacted>", err.Error())
	}
}

func validateSecretUpdate(ctx context.Context, c *check.Checker, s, old *corev1.Secret) {
	c.Declared().Immutable(field.NewPath("type"), s.Type, old.Type)
	if old.Immutable != nil && *old.Immutable {
		stillImmutable(c, s.Immutable)
		unchanged(c, field.NewPath("data"), s.Data, old.Data)
	}
	validateSecret(ctx, c, s)
}
