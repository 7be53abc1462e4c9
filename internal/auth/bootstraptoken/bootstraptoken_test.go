// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

const token = "abcdef.0123456789abcdef"

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// secretWith returns the Secret of a valid token, modified by change.
func secretWith(change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type:       "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
		},
	}
	if change != nil {
		change(secret)
	}
	return secret
}

func set(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func TestAuthenticate(t *testing.T) {
	plain := []string{"system:bootstrappers"}
	for name, tt := range map[string]struct {
		token  string
		secret *corev1.Secret
		groups []string // nil: refused
	}{
		"valid":                    {token, secretWith(nil), plain},
		"not expired":              {token, secretWith(set("expiration", now.Add(time.Second).Format(time.RFC3339))), plain},
		"more groups":              {token, secretWith(set("auth-extra-groups", "system:bootstrappers:rack-1")), []string{"system:bootstrappers", "system:bootstrappers:rack-1"}},
		"expired":                  {token, secretWith(set("expiration", now.Format(time.RFC3339))), nil},
		"invalid expiration":       {token, secretWith(set("expiration", "some day")), nil},
		"group without the prefix": {token, secretWith(set("auth-extra-groups", "system:masters")), nil},
		"other usage":              {token, secretWith(set("usage-bootstrap-authentication", "yes")), nil},
		"other password":           {"abcdef.0123456789abcdeg", secretWith(nil), nil},
		"other id":                 {token, secretWith(set("token-id", "ghijkl")), nil},
		"no secret":                {"ghijkl.0123456789abcdef", secretWith(nil), nil},
		"another type of Secret":   {token, secretWith(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), nil},
		"another namespace":        {token, secretWith(func(s *corev1.Secret) { s.Namespace = "default" }), nil},
		"being deleted":            {token, secretWith(func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }), nil},
		"no data":                  {token, secretWith(func(s *corev1.Secret) { s.Data = nil }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAuthenticator(fake.NewClientset(tt.secret), clocktesting.NewFakePassiveClock(now))
			response, ok, err := a.AuthenticateToken(t.Context(), tt.token)
			if err != nil || ok != (tt.groups != nil) {
				t.Fatalf("got %v, %v", ok, err)
			}
			if !ok {
				return
			}
			if got := response.User.GetName(); got != "system:bootstrap:abcdef" {
				t.Errorf("the user is %s", got)
			}
			if diff := cmp.Diff(tt.groups, response.User.GetGroups()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Tokens of another form cause no read. A failed read is an error and not a refusal.
func TestOtherTokensAreIgnored(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the store is unavailable")
	})
	a := NewAuthenticator(client, clocktesting.NewFakePassiveClock(now))
	for _, other := range []string{"", "bogus", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef0", "a.b.c", "abcdef.0123456789abcdef\n"} {
		if _, ok, err := a.AuthenticateToken(t.Context(), other); ok || err != nil {
			t.Errorf("%q: %v, %v", other, ok, err)
		}
	}
	if reads := len(client.Actions()); reads != 0 {
		t.Errorf("%d reads", reads)
	}
	if _, ok, err := a.AuthenticateToken(t.Context(), token); ok || err == nil {
		t.Errorf("failed read: %v, %v", ok, err)
	}
}
