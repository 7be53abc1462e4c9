// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication configures authentication by services outside of the cluster: issuers
// of JSON web tokens (OIDC), and a webhook.
//
// Options are upstream's flags. Load reads and checks the files that they name, so that a mistake
// is found before anything is started. Its result creates the authenticators. The flags for one
// issuer are converted to an AuthenticationConfiguration.
package authentication

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/kindred-project/kindred/internal/auth/serviceaccount"
)

// Options are upstream's flags of the same names.
type Options struct {
	ConfigFile string

	OIDCIssuerURL      string
	OIDCClientID       string
	OIDCUsernameClaim  string
	OIDCUsernamePrefix string
	OIDCGroupsClaim    string
	OIDCGroupsPrefix   string
	OIDCRequiredClaims map[string]string
	OIDCCAFile         string
	OIDCSigningAlgs    []string

	WebhookConfigFile string
	WebhookVersion    string
	WebhookCacheTTL   time.Duration
}

// Defaults of the options: upstream's, except the version.
const (
	DefaultUsernameClaim   = "sub"
	DefaultSigningAlg      = "RS256"
	DefaultWebhookVersion  = "v1"
	DefaultWebhookCacheTTL = 2 * time.Minute
)

// Config is the result of Load. The zero value has no authenticators.
type Config struct {
	// issuers is nil if no issuer is configured and no file can add one.
	issuers *issuers
	webhook *webhookConfig
}

type webhookConfig struct {
	client  *rest.Config
	version string
	ttl     time.Duration
}

// Load reads and checks the files that the options name.
func Load(o Options) (Config, error) {
	var config Config
	var err error
	switch {
	case o.ConfigFile != "" && o.anyOIDC():
		return config, errors.New("--authentication-config and the --oidc flags exclude each other: write the issuer into the file")
	case o.ConfigFile != "":
		config.issuers, err = loadIssuers(o.ConfigFile)
	case o.anyOIDC():
		config.issuers, err = o.issuer()
	}
	if err != nil {
		return config, err
	}
	if config.webhook, err = o.webhook(); err != nil {
		return config, err
	}
	return config, nil
}

// Anonymous returns the settings of anonymous authentication; nil if the configuration has none.
func (c Config) Anonymous() *apiserver.AnonymousAuthConfig {
	if c.issuers == nil {
		return nil
	}
	return c.issuers.configuration.Anonymous
}

// anyOIDC reports whether an --oidc flag was set to another value than its default.
func (o Options) anyOIDC() bool {
	for _, value := range []string{
		o.OIDCIssuerURL, o.OIDCClientID, o.OIDCUsernamePrefix, o.OIDCGroupsClaim, o.OIDCGroupsPrefix, o.OIDCCAFile,
	} {
		if value != "" {
			return true
		}
	}
	return len(o.OIDCRequiredClaims) > 0 ||
		o.OIDCUsernameClaim != "" && o.OIDCUsernameClaim != DefaultUsernameClaim ||
		len(o.OIDCSigningAlgs) > 0 && !slices.Equal(o.OIDCSigningAlgs, []string{DefaultSigningAlg})
}

// issuer converts the flags for one issuer to a configuration.
func (o Options) issuer() (*issuers, error) {
	if o.OIDCIssuerURL == "" || o.OIDCClientID == "" {
		return nil, errors.New("an OIDC issuer requires both --oidc-issuer-url and --oidc-client-id")
	}
	algorithms := o.OIDCSigningAlgs
	if len(algorithms) == 0 {
		algorithms = []string{DefaultSigningAlg}
	}
	for _, algorithm := range algorithms {
		if known := oidc.AllValidSigningAlgorithms(); !slices.Contains(known, algorithm) {
			return nil, fmt.Errorf("--oidc-signing-algs: %q is none of %v", algorithm, known)
		}
	}
	jwt := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: o.OIDCIssuerURL, Audiences: []string{o.OIDCClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: o.username()},
	}
	if o.OIDCGroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.OIDCGroupsClaim, Prefix: &o.OIDCGroupsPrefix}
	}
	for claim, value := range o.OIDCRequiredClaims {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	if o.OIDCCAFile != "" {
		authority, err := os.ReadFile(o.OIDCCAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		if _, err := cert.ParseCertsPEM(authority); err != nil {
			return nil, fmt.Errorf("--oidc-ca-file %s: %w", o.OIDCCAFile, err)
		}
		jwt.Issuer.CertificateAuthority = string(authority)
	}
	configuration := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{jwt}}
	if err := check(configuration); err != nil {
		return nil, fmt.Errorf("the --oidc flags: %w", err)
	}
	return &issuers{configuration: configuration, algorithms: algorithms}, nil
}

// username prefixes names with the issuer, so that they cannot collide with names of other users.
// It does not prefix e-mail addresses, nor any name if the prefix is "-".
func (o Options) username() apiserver.PrefixedClaimOrExpression {
	claim, prefix := o.OIDCUsernameClaim, o.OIDCUsernamePrefix
	if claim == "" {
		claim = DefaultUsernameClaim
	}
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && claim != "email":
		prefix = o.OIDCIssuerURL + "#"
	}
	return apiserver.PrefixedClaimOrExpression{Claim: claim, Prefix: &prefix}
}

func (o Options) webhook() (*webhookConfig, error) {
	config := &webhookConfig{version: o.WebhookVersion, ttl: o.WebhookCacheTTL}
	if config.version == "" {
		config.version = DefaultWebhookVersion
	}
	if config.version != "v1" && config.version != "v1beta1" {
		return nil, fmt.Errorf("--authentication-token-webhook-version: %q is neither v1 nor v1beta1", config.version)
	}
	if config.ttl == 0 {
		config.ttl = DefaultWebhookCacheTTL
	}
	if o.WebhookConfigFile == "" {
		return nil, nil
	}
	var err error
	if config.client, err = webhook.LoadKubeconfig(o.WebhookConfigFile, nil); err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file %s: %w", o.WebhookConfigFile, err)
	}
	return config, nil
}

// check validates a configuration with the published rules. It refuses this cluster's own issuer
// of service account tokens.
func check(configuration *apiserver.AuthenticationConfiguration) error {
	return validation.ValidateAuthenticationConfiguration(cel.NewDefaultCompiler(), configuration, []string{serviceaccount.DefaultIssuerURL}).ToAggregate()
}
