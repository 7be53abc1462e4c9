// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/auth/serviceaccount"
)

// write writes content to a new file and returns its name.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const issuer = "https://issuer.example"

// The --oidc flags are equivalent to a configuration file.
func TestFlagsBecomeAConfiguration(t *testing.T) {
	plain := Options{OIDCIssuerURL: issuer, OIDCClientID: "kindred"}
	with := func(change func(*Options)) Options {
		o := plain
		change(&o)
		return o
	}
	username := func(claim, prefix string) apiserver.ClaimMappings {
		return apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: claim, Prefix: ptr.To(prefix)}}
	}
	for name, tt := range map[string]struct {
		options  Options
		mappings apiserver.ClaimMappings
		rules    []apiserver.ClaimValidationRule
	}{
		"issuer and client only":             {plain, username("sub", issuer+"#"), nil},
		"e-mail addresses":                   {with(func(o *Options) { o.OIDCUsernameClaim = "email" }), username("email", ""), nil},
		"a prefix":                           {with(func(o *Options) { o.OIDCUsernamePrefix = "oidc:" }), username("sub", "oidc:"), nil},
		"no prefix":                          {with(func(o *Options) { o.OIDCUsernamePrefix = "-" }), username("sub", ""), nil},
		"a prefix of e-mail addresses":       {with(func(o *Options) { o.OIDCUsernameClaim, o.OIDCUsernamePrefix = "email", "x:" }), username("email", "x:"), nil},
		"required claims":                    {with(func(o *Options) { o.OIDCRequiredClaims = map[string]string{"hd": "example"} }), username("sub", issuer+"#"), []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "example"}}},
		"groups prefix without groups claim": {with(func(o *Options) { o.OIDCGroupsPrefix = "oidc:" }), username("sub", issuer+"#"), nil},
		"groups": {with(func(o *Options) { o.OIDCGroupsClaim, o.OIDCGroupsPrefix = "groups", "oidc:" }), apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: ptr.To(issuer + "#")},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: ptr.To("oidc:")},
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Load(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			want := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{{
				Issuer:        apiserver.Issuer{URL: issuer, Audiences: []string{"kindred"}},
				ClaimMappings: tt.mappings, ClaimValidationRules: tt.rules,
			}}}
			if diff := cmp.Diff(want, config.issuers.configuration); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"RS256"}, config.issuers.algorithms); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no options":     {},
		"default values": {OIDCUsernameClaim: "sub", OIDCSigningAlgs: []string{"RS256"}, WebhookVersion: "v1", WebhookCacheTTL: DefaultWebhookCacheTTL},
	} {
		if config, err := Load(o); err != nil || config != (Config{}) || config.Anonymous() != nil {
			t.Errorf("%s: %+v, %v", name, config, err)
		}
	}
}

const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

func TestInvalidOptions(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	one := Options{OIDCIssuerURL: issuer, OIDCClientID: "kindred"}
	with := func(change func(*Options)) Options {
		o := one
		change(&o)
		return o
	}
	for name, tt := range map[string]struct {
		options Options
		want    string
	}{
		"no client":                     {Options{OIDCIssuerURL: issuer}, "an OIDC issuer requires both --oidc-issuer-url and --oidc-client-id"},
		"no issuer":                     {Options{OIDCGroupsClaim: "groups"}, "an OIDC issuer requires both --oidc-issuer-url and --oidc-client-id"},
		"claim without an issuer":       {Options{OIDCUsernameClaim: "email"}, "requires both"},
		"algorithm without an issuer":   {Options{OIDCSigningAlgs: []string{"ES256"}}, "requires both"},
		"plain HTTP":                    {with(func(o *Options) { o.OIDCIssuerURL = "http://issuer.example" }), "the --oidc flags: jwt[0].issuer.url: Invalid value"},
		"the cluster's own issuer":      {with(func(o *Options) { o.OIDCIssuerURL = serviceaccount.DefaultIssuerURL }), "URL must not overlap with disallowed issuers"},
		"unsupported algorithm":         {with(func(o *Options) { o.OIDCSigningAlgs = []string{"RS256", "HS256"} }), `--oidc-signing-algs: "HS256" is none of [ES256 `},
		"missing CA file":               {with(func(o *Options) { o.OIDCCAFile = missing }), "--oidc-ca-file: open " + missing},
		"invalid CA file":               {with(func(o *Options) { o.OIDCCAFile = write(t, "x") }), "--oidc-ca-file "},
		"file and flags":                {with(func(o *Options) { o.ConfigFile = missing }), "--authentication-config and the --oidc flags exclude each other"},
		"missing file":                  {Options{ConfigFile: missing}, "--authentication-config: open " + missing},
		"an empty file":                 {Options{ConfigFile: write(t, "\n")}, "the file is empty"},
		"another kind":                  {Options{ConfigFile: write(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n")}, "it is not an AuthenticationConfiguration"},
		"an unknown field":              {Options{ConfigFile: write(t, header+"tokens: []\n")}, `unknown field "tokens"`},
		"an invalid issuer":             {Options{ConfigFile: write(t, header+"jwt: [{issuer: {url: ftp://x, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: \"\"}}}]\n")}, "jwt[0].issuer.url"},
		"missing webhook configuration": {Options{WebhookConfigFile: missing}, "--authentication-token-webhook-config-file " + missing},
		"an unknown version":            {Options{WebhookVersion: "v2"}, `--authentication-token-webhook-version: "v2" is neither v1 nor v1beta1`},
		"a broken kubeconfig":           {Options{WebhookConfigFile: write(t, "clusters: 1")}, "--authentication-token-webhook-config-file "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want ...%s...", err, tt.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("several lines: %q", err)
			}
		})
	}
}

func TestAnonymous(t *testing.T) {
	config, err := Load(Options{ConfigFile: write(t, header+"anonymous: {enabled: true, conditions: [{path: /livez}]}\n")})
	if err != nil {
		t.Fatal(err)
	}
	want := &apiserver.AnonymousAuthConfig{Enabled: true, Conditions: []apiserver.AnonymousAuthCondition{{Path: "/livez"}}}
	if diff := cmp.Diff(want, config.Anonymous()); diff != "" {
		t.Error(diff)
	}
}
