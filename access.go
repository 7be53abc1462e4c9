// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"time"

	"k8s.io/apiserver/pkg/server/options"

	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authorization"
)

// AuthenticationOptions configure authentication by services outside of the cluster: OIDC
// issuers and a webhook. They have the meaning of upstream's flags --authentication-config,
// --oidc-... and --authentication-token-webhook-....
type AuthenticationOptions struct {
	// ConfigFile is a file with an AuthenticationConfiguration of apiserver.config.k8s.io. It is
	// reloaded when it changes, and excludes the OIDC fields.
	ConfigFile string
	// OIDCIssuerURL and OIDCClientID are the issuer and the audience of accepted tokens.
	OIDCIssuerURL, OIDCClientID string
	// OIDCUsernameClaim is the claim with the user's name; "sub" if empty.
	OIDCUsernameClaim string
	// OIDCUsernamePrefix is the prefix of user names. If it is empty, the prefix is the issuer's
	// URL and "#", or none for the claim "email". "-" stands for no prefix.
	OIDCUsernamePrefix string
	// OIDCGroupsClaim is the claim with the user's groups, OIDCGroupsPrefix their prefix.
	OIDCGroupsClaim, OIDCGroupsPrefix string
	// OIDCRequiredClaims are claims, with their values, that a token must have.
	OIDCRequiredClaims map[string]string
	// OIDCCAFile has the certificate authorities that verify the issuer; those of the machine if
	// empty.
	OIDCCAFile string
	// OIDCSigningAlgs are the accepted signature algorithms (RFC 7518); RS256 if empty.
	OIDCSigningAlgs []string
	// WebhookConfigFile is a kubeconfig of a service that answers TokenReviews of
	// WebhookVersion, v1 or v1beta1.
	WebhookConfigFile, WebhookVersion string
	// WebhookCacheTTL is the time that its answers are cached; DefaultTokenWebhookCacheTTL if 0, not
	// at all if negative.
	WebhookCacheTTL time.Duration
}

// AuthorizationOptions configure authorization beyond the node authorizer and RBAC. They have
// the meaning of upstream's flags --authorization-config and --authorization-webhook-....
type AuthorizationOptions struct {
	// ConfigFile is a file with an AuthorizationConfiguration of apiserver.config.k8s.io, which
	// replaces the chain. It is reloaded when it changes, and excludes the other fields.
	ConfigFile string
	// WebhookConfigFile is a kubeconfig of a service that answers SubjectAccessReviews of
	// WebhookVersion, v1 or v1beta1, if neither the node authorizer nor RBAC allows a request.
	WebhookConfigFile, WebhookVersion string
	// How long the webhook's answers are cached; DefaultAuthorizedTTL and DefaultUnauthorizedTTL
	// if 0, not at all if negative.
	WebhookAuthorizedTTL, WebhookUnauthorizedTTL time.Duration
}

// AuditOptions are upstream's: each of its --audit flags is a field. An audit log needs a
// policy file and a backend, a log file or a webhook.
type AuditOptions = options.AuditOptions

// NewAuditOptions returns upstream's defaults, with which nothing is logged.
func NewAuditOptions() *AuditOptions { return options.NewAuditOptions() }

// Defaults of AuthenticationOptions and AuthorizationOptions.
const (
	DefaultOIDCUsernameClaim    = authentication.DefaultUsernameClaim
	DefaultOIDCSigningAlg       = authentication.DefaultSigningAlg
	DefaultWebhookVersion       = authentication.DefaultWebhookVersion
	DefaultTokenWebhookCacheTTL = authentication.DefaultWebhookCacheTTL
	DefaultAuthorizedTTL        = authorization.DefaultWebhookAuthorizedTTL
	DefaultUnauthorizedTTL      = authorization.DefaultWebhookUnauthorizedTTL
)
