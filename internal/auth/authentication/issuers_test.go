// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/authentication/testissuer"
)

var audiences = authenticator.Audiences{"https://kubernetes.default.svc.cluster.local"}

// configurationOf returns a configuration that trusts the issuers.
func configurationOf(issuers ...*testissuer.Issuer) string {
	var text strings.Builder
	text.WriteString(header + "jwt:\n")
	for i, one := range issuers {
		fmt.Fprintf(&text, "- issuer:\n    url: %s\n    audiences: [kindred]\n    certificateAuthority: |\n      %s\n", one.URL, strings.ReplaceAll(strings.TrimSpace(one.CA), "\n", "\n      "))
		fmt.Fprintf(&text, "  claimMappings: {username: {claim: sub, prefix: \"%d:\"}, groups: {claim: groups, prefix: \"\"}}\n", i)
		fmt.Fprintf(&text, "  claimValidationRules: [{expression: 'claims.tenant == \"a\"', message: wrong tenant}]\n")
	}
	return text.String()
}

func claims(change map[string]any) map[string]any {
	all := map[string]any{
		"sub": "jane", "aud": "kindred", "groups": []string{"developers"}, "tenant": "a",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for name, value := range change {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

// eventually retries until try succeeds, because the keys of issuers are fetched in the background.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func tokensOf(t *testing.T, o Options) authenticator.Token {
	t.Helper()
	config, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := config.Tokens(t.Context(), audiences, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func accepts(t *testing.T, tokens authenticator.Token, token, name string) error {
	t.Helper()
	response, ok, err := tokens.AuthenticateToken(authenticator.WithAudiences(t.Context(), audiences), token)
	if err != nil || !ok {
		return fmt.Errorf("%s: %v, %v", name, ok, err)
	}
	if response.User.GetName() != name {
		return fmt.Errorf("the user is %s, want %s", response.User.GetName(), name)
	}
	return nil
}

func TestIssuer(t *testing.T) {
	issuer, stranger := testissuer.New(t), testissuer.New(t)
	tokens := tokensOf(t, Options{ConfigFile: write(t, configurationOf(issuer))})
	good := issuer.Sign(t, claims(nil))
	eventually(t, func() error { return accepts(t, tokens, good, "0:jane") })
	response, _, err := tokens.AuthenticateToken(authenticator.WithAudiences(t.Context(), audiences), good)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"developers"}, response.User.GetGroups()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(audiences, response.Audiences); diff != "" {
		t.Error(diff)
	}
	for name, token := range map[string]string{
		"another audience":                 issuer.Sign(t, claims(map[string]any{"aud": "other"})),
		"expired":                          issuer.Sign(t, claims(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"another tenant":                   issuer.Sign(t, claims(map[string]any{"tenant": "b"})),
		"without a name":                   issuer.Sign(t, claims(map[string]any{"sub": nil})),
		"another issuer":                   stranger.Sign(t, claims(nil)),
		"another key in the issuer's name": stranger.Sign(t, claims(map[string]any{"iss": issuer.URL})),
		"truncated signature":              good[:len(good)-2],
	} {
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A valid change of the file takes effect, an invalid one does not.
func TestReload(t *testing.T) {
	first, second := testissuer.New(t), testissuer.New(t)
	file := write(t, configurationOf(first))
	replace := func(content string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	tokens := tokensOf(t, Options{ConfigFile: file})
	ofFirst, ofSecond := first.Sign(t, claims(nil)), second.Sign(t, claims(nil))
	eventually(t, func() error { return accepts(t, tokens, ofFirst, "0:jane") })
	if err := accepts(t, tokens, ofSecond, "1:jane"); err == nil {
		t.Error("an issuer that is not configured is trusted")
	}
	replace(configurationOf(first, second))
	eventually(t, func() error { return accepts(t, tokens, ofSecond, "1:jane") })
	for name, wrong := range map[string]string{
		"nonsense":  "nonsense",
		"anonymous": configurationOf(second) + "anonymous: {enabled: true}\n",
	} {
		config, err := Load(Options{ConfigFile: file})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.issuers.next(t.Context(), []byte(wrong), clock.RealClock{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	replace(configurationOf(second))
	eventually(t, func() error { return accepts(t, tokens, ofSecond, "0:jane") })
	if err := accepts(t, tokens, ofFirst, "0:jane"); err == nil {
		t.Error("a removed issuer is still trusted")
	}
}
