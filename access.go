// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"time"

	"k8s.io/apiserver/pkg/server/options"

	"github.com/kindred-project/kindred/internal/auth/authentication"
	"github.com/kindred-project/kindred/internal/auth/authorization"
)

// AuthenticationOptions are who outside of the cluster may say who a caller is:
// issuers of OIDC tokens, and a webhook. Their meaning is that of upstream's
// flags --authentication-config, --oidc-... and --authentication-token-webhook-....
type AuthenticationOptions struct {
	// ConfigFile is an AuthenticationConfiguration of apiserver.config.k8s.io. It
	// is read again when it changes. It excludes the OIDC fields.
	ConfigFile string
	// OIDCIssuerURL and OIDCClientID trust one issuer's tokens for one audience.
	OIDCIssuerURL, OIDCClientID string
	// OIDCUsernameClaim is the claim with the user's name; "sub" if empty.
	OIDCUsernameClaim string
	// OIDCUsernamePrefix is put before names; if it is empty that is the issuer's
	// URL and "#", but for the claim "email". "-" is no prefix.
	OIDCUsernamePrefix string
	// OIDCGroupsClaim is the claim with the user's groups, OIDCGroupsPrefix what
	// is put before them.
	OIDCGroupsClaim, OIDCGroupsPrefix string
	// OIDCRequiredClaims are claims that a token must have, with their values.
	OIDCRequiredClaims map[string]string
	// OIDCCAFile are the authorities of the issuer's own certificate; the
	// machine's if empty.
	OIDCCAFile string
	// OIDCSigningAlgs are the accepted algorithms (RFC 7518); RS256 if empty.
	OIDCSigningAlgs []string
	// WebhookConfigFile is a kubeconfig for a service that TokenReviews are sent
	// to, of WebhookVersion: v1, or v1beta1.
	WebhookConfigFile, WebhookVersion string
	// WebhookCacheTTL is how long its answers hold;
	// DefaultTokenWebhookCacheTTL if 0, not at all if negative.
	WebhookCacheTTL time.Duration
}

// AuthorizationOptions add to who says what a caller may do. Without them these
// are the node authorizer and RBAC. Their meaning is that of upstream's flags
// --authorization-config and --authorization-webhook-....
type AuthorizationOptions struct {
	// ConfigFile is an AuthorizationConfiguration of apiserver.config.k8s.io, the
	// whole chain. It is read again when it changes. It excludes the other fields.
	ConfigFile string
	// WebhookConfigFile is a kubeconfig for a service that SubjectAccessReviews
	// are sent to, of WebhookVersion (v1, or v1beta1), when neither node
	// authorizer nor RBAC allows a request.
	WebhookConfigFile, WebhookVersion string
	// How long the webhook's answers hold; DefaultAuthorizedTTL and
	// DefaultUnauthorizedTTL if 0, not at all if negative.
	WebhookAuthorizedTTL, WebhookUnauthorizedTTL time.Duration
}

// AuditOptions are upstream's: each of its --audit flags is a field. A record
// takes a policy file and a place to go, a log or a webhook.
type AuditOptions = options.AuditOptions

// NewAuditOptions are upstream's defaults: nothing is recorded.
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
