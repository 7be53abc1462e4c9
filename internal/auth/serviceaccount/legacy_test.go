// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// legacyWorld returns a world with a Secret app/s1 that holds a token of app/web.
func legacyWorld(t *testing.T) (*world, *Legacy, string) {
	t.Helper()
	w := newWorld(t)
	token, err := w.keys.LegacyToken(&corev1.ServiceAccount{ObjectMeta: meta("app", "web")}, "s1")
	if err != nil {
		t.Fatal(err)
	}
	w.change(t, func(s *corev1.Secret) { s.Data = map[string][]byte{"token": []byte(token)} })
	return w, NewLegacy(w.keys, NewObjects(w.client, w.informers.Core().V1()), []string{DefaultIssuerURL}, w.clock), token
}

func (w *world) change(t *testing.T, change func(*corev1.Secret)) {
	t.Helper()
	secrets := w.client.CoreV1().Secrets("app")
	secret, err := secrets.Get(context.Background(), "s1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(secret)
	if _, err := secrets.Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) lastUsed(t *testing.T) string {
	t.Helper()
	secret, err := w.client.CoreV1().Secrets("app").Get(context.Background(), "s1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret.Labels["kubernetes.io/legacy-token-last-used"]
}

func TestTokenInSecretDoesNotExpire(t *testing.T) {
	w, legacy, token := legacyWorld(t)
	if diff := cmp.Diff(map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:app:web",
		"kubernetes.io/serviceaccount/namespace": "app", "kubernetes.io/serviceaccount/secret.name": "s1",
		"kubernetes.io/serviceaccount/service-account.name": "web", "kubernetes.io/serviceaccount/service-account.uid": "web-uid",
	}, payloadOf(t, token)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	for _, day := range []string{"2026-03-01", "2036-03-01"} {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		w.clock.SetTime(at.Add(time.Hour))
		response, ok, err := legacy.AuthenticateToken(context.Background(), token)
		if err != nil || !ok || response.User.GetName() != "system:serviceaccount:app:web" || response.User.GetUID() != "web-uid" {
			t.Fatalf("%v, %v, %v", response, ok, err)
		}
		if got := w.lastUsed(t); got != day {
			t.Errorf("last used on %q, want %s", got, day)
		}
	}
	// Another server, whose clock is ahead, has recorded tomorrow.
	w.change(t, func(s *corev1.Secret) { s.Labels["kubernetes.io/legacy-token-last-used"] = "2036-03-02" })
	if _, ok, err := legacy.AuthenticateToken(context.Background(), token); !ok || err != nil || w.lastUsed(t) != "2036-03-02" {
		t.Errorf("%v, %v, last used on %s", ok, err, w.lastUsed(t))
	}
}

func TestRefusedTokensOfSecrets(t *testing.T) {
	ctx := context.Background()
	for name, tt := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"the Secret is deleted":          {func(w *world) { w.delete(t, "secret") }, "Token has been invalidated"},
		"the account is deleted":         {func(w *world) { w.delete(t, "account") }, "not found"},
		"the Secret holds another token": {func(w *world) { w.change(t, func(s *corev1.Secret) { s.Data["token"] = []byte("x") }) }, "Token does not match server's copy"},
		"the token was marked invalid": {func(w *world) {
			w.change(t, func(s *corev1.Secret) { s.Labels = map[string]string{invalidSinceLabel: "2026-01-01"} })
		}, "has been marked invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			w, legacy, token := legacyWorld(t)
			tt.spoil(w)
			if _, ok, err := legacy.AuthenticateToken(ctx, token); ok || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}

	w, legacy, token := legacyWorld(t)
	if _, ok, err := legacy.AuthenticateToken(authenticator.WithAudiences(ctx, []string{"vault"}), token); ok || err == nil {
		t.Errorf("for another audience: %v, %v", ok, err)
	}
	// Neither authenticator accepts the other's tokens.
	bound := w.request(t, boundTo("Pod", "p1"))
	if _, ok, err := legacy.AuthenticateToken(ctx, bound); ok || err != nil {
		t.Errorf("a bound token: %v, %v", ok, err)
	}
	if _, ok, err := w.authenticator.AuthenticateToken(ctx, token); ok || err != nil {
		t.Errorf("a legacy token as a bound one: %v, %v", ok, err)
	}
	// Tokens with another signature, or without a required claim, are refused.
	other := newWorld(t)
	foreign, err := other.keys.LegacyToken(&corev1.ServiceAccount{ObjectMeta: meta("app", "web")}, "s1")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := legacy.AuthenticateToken(ctx, foreign); ok || err == nil {
		t.Errorf("signed by another: %v, %v", ok, err)
	}
	nameless, err := w.keys.LegacyToken(&corev1.ServiceAccount{ObjectMeta: meta("app", "web")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := legacy.AuthenticateToken(ctx, nameless); ok || err == nil || err.Error() != "secretName claim is missing" {
		t.Errorf("without a Secret: %v, %v", ok, err)
	}
}

func (w *world) delete(t *testing.T, what string) {
	t.Helper()
	var err error
	if what == "secret" {
		err = w.client.CoreV1().Secrets("app").Delete(context.Background(), "s1", metav1.DeleteOptions{})
	} else {
		err = w.client.CoreV1().ServiceAccounts("app").Delete(context.Background(), "web", metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
