// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kindred-project/kindred"
)

// addAuthenticationFlags adds flags that have the same names and meanings as upstream's.
func addAuthenticationFlags(flags *pflag.FlagSet, o *kindred.AuthenticationOptions) {
	flags.StringVar(&o.ConfigFile, "authentication-config", "", "file with an AuthenticationConfiguration (token issuers, anonymous access); cannot be used with the --oidc flags")
	flags.StringVar(&o.OIDCIssuerURL, "oidc-issuer-url", "", "HTTPS URL of the OpenID issuer whose tokens are accepted")
	flags.StringVar(&o.OIDCClientID, "oidc-client-id", "", "client ID; it must be an audience of the token")
	flags.StringVar(&o.OIDCUsernameClaim, "oidc-username-claim", kindred.DefaultOIDCUsernameClaim, "claim with the user's name")
	flags.StringVar(&o.OIDCUsernamePrefix, "oidc-username-prefix", "", "prefix of user names; \"-\" for none (default the issuer's URL and \"#\", none for the claim email)")
	flags.StringVar(&o.OIDCGroupsClaim, "oidc-groups-claim", "", "claim with the user's groups, a string or an array of strings")
	flags.StringVar(&o.OIDCGroupsPrefix, "oidc-groups-prefix", "", "prefix of group names")
	flags.Var(cliflag.NewMapStringStringNoSplit(&o.OIDCRequiredClaims), "oidc-required-claim", "key=value of a claim that tokens must have; may be repeated")
	flags.StringVar(&o.OIDCCAFile, "oidc-ca-file", "", "file of the CA that signed the issuer's certificate (default the machine's CAs)")
	flags.StringSliceVar(&o.OIDCSigningAlgs, "oidc-signing-algs", []string{kindred.DefaultOIDCSigningAlg}, "accepted signing algorithms, of RFC 7518")
	flags.StringVar(&o.WebhookConfigFile, "authentication-token-webhook-config-file", "", "kubeconfig of the webhook that authenticates tokens")
	flags.StringVar(&o.WebhookVersion, "authentication-token-webhook-version", kindred.DefaultWebhookVersion, "API version of the TokenReviews sent to the webhook")
	flags.Var(newCacheTTL(&o.WebhookCacheTTL, kindred.DefaultTokenWebhookCacheTTL), "authentication-token-webhook-cache-ttl", "how long answers of the token webhook are cached")
}

// addAuthorizationFlags adds flags that have the same names and meanings as upstream's.
func addAuthorizationFlags(flags *pflag.FlagSet, o *kindred.AuthorizationOptions) {
	flags.StringVar(&o.ConfigFile, "authorization-config", "", "file with an AuthorizationConfiguration (the chain of authorizers); cannot be used with the --authorization-webhook flags")
	flags.StringVar(&o.WebhookConfigFile, "authorization-webhook-config-file", "", "kubeconfig of the webhook that authorizes requests which neither the node authorizer nor RBAC allows")
	flags.StringVar(&o.WebhookVersion, "authorization-webhook-version", kindred.DefaultWebhookVersion, "API version of the SubjectAccessReviews sent to the webhook")
	flags.Var(newCacheTTL(&o.WebhookAuthorizedTTL, kindred.DefaultAuthorizedTTL), "authorization-webhook-cache-authorized-ttl", "how long the webhook's allowed answers are cached")
	flags.Var(newCacheTTL(&o.WebhookUnauthorizedTTL, kindred.DefaultUnauthorizedTTL), "authorization-webhook-cache-unauthorized-ttl", "how long the webhook's other answers are cached")
}

// addAuditFlags adds the flags of k8s.io/apiserver. Help omits the many that tune batching and
// truncation.
func addAuditFlags(flags *pflag.FlagSet, o *kindred.AuditOptions) {
	o.AddFlags(flags)
	flags.VisitAll(func(flag *pflag.Flag) {
		for _, part := range []string{"-batch-", "-truncate-", "-version", "-backoff"} {
			flag.Hidden = flag.Hidden || strings.Contains(flag.Name, part)
		}
	})
}

// cacheTTL is a flag with the TTL of a cache. On the command line 0 disables the cache, as upstream;
// in Options 0 is the default, and a negative duration disables it.
type cacheTTL time.Duration

var _ pflag.Value = new(cacheTTL)

// newCacheTTL returns a flag that sets target, which has a default.
func newCacheTTL(target *time.Duration, byDefault time.Duration) *cacheTTL {
	*target = byDefault
	return (*cacheTTL)(target)
}

func (t *cacheTTL) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d == 0 {
		d = -1
	}
	*t = cacheTTL(d)
	return nil
}

func (t *cacheTTL) String() string { return max(time.Duration(*t), 0).String() }

func (*cacheTTL) Type() string { return "duration" }
