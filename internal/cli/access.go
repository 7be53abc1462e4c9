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

// addAuthenticationFlags are upstream's, and so are their meanings.
func addAuthenticationFlags(flags *pflag.FlagSet, o *kindred.AuthenticationOptions) {
	flags.StringVar(&o.ConfigFile, "authentication-config", "", "file with an AuthenticationConfiguration: issuers of tokens, anonymous callers; excludes the --oidc flags")
	flags.StringVar(&o.OIDCIssuerURL, "oidc-issuer-url", "", "HTTPS URL of an OpenID issuer whose tokens are accepted")
	flags.StringVar(&o.OIDCClientID, "oidc-client-id", "", "audience that the issuer's tokens must be for")
	flags.StringVar(&o.OIDCUsernameClaim, "oidc-username-claim", kindred.DefaultOIDCUsernameClaim, "claim with the user's name")
	flags.StringVar(&o.OIDCUsernamePrefix, "oidc-username-prefix", "", "what is put before user names; \"-\" is nothing (default the issuer's URL and #, but for the claim email)")
	flags.StringVar(&o.OIDCGroupsClaim, "oidc-groups-claim", "", "claim with the user's groups: a string or several")
	flags.StringVar(&o.OIDCGroupsPrefix, "oidc-groups-prefix", "", "what is put before group names")
	flags.Var(cliflag.NewMapStringStringNoSplit(&o.OIDCRequiredClaims), "oidc-required-claim", "key=value of a claim that a token must have; may be repeated")
	flags.StringVar(&o.OIDCCAFile, "oidc-ca-file", "", "file of the CA that signed the issuer's certificate (default the machine's CAs)")
	flags.StringSliceVar(&o.OIDCSigningAlgs, "oidc-signing-algs", []string{kindred.DefaultOIDCSigningAlg}, "accepted signing algorithms, of RFC 7518")
	flags.StringVar(&o.WebhookConfigFile, "authentication-token-webhook-config-file", "", "kubeconfig of a service that is asked whose a token is")
	flags.StringVar(&o.WebhookVersion, "authentication-token-webhook-version", kindred.DefaultWebhookVersion, "version of the TokenReviews that it is sent")
	flags.Var(newHold(&o.WebhookCacheTTL, kindred.DefaultTokenWebhookCacheTTL), "authentication-token-webhook-cache-ttl", "how long its answers hold")
}

// addAuthorizationFlags are upstream's, and so are their meanings.
func addAuthorizationFlags(flags *pflag.FlagSet, o *kindred.AuthorizationOptions) {
	flags.StringVar(&o.ConfigFile, "authorization-config", "", "file with an AuthorizationConfiguration: the chain of authorizers; excludes the --authorization-webhook flags")
	flags.StringVar(&o.WebhookConfigFile, "authorization-webhook-config-file", "", "kubeconfig of a service that is asked for what neither node authorizer nor RBAC allows")
	flags.StringVar(&o.WebhookVersion, "authorization-webhook-version", kindred.DefaultWebhookVersion, "version of the SubjectAccessReviews that it is sent")
	flags.Var(newHold(&o.WebhookAuthorizedTTL, kindred.DefaultAuthorizedTTL), "authorization-webhook-cache-authorized-ttl", "how long its yes holds")
	flags.Var(newHold(&o.WebhookUnauthorizedTTL, kindred.DefaultUnauthorizedTTL), "authorization-webhook-cache-unauthorized-ttl", "how long its no holds")
}

// addAuditFlags are upstream's own. Help keeps quiet of the many that tune how
// events are batched and cut.
func addAuditFlags(flags *pflag.FlagSet, o *kindred.AuditOptions) {
	o.AddFlags(flags)
	flags.VisitAll(func(flag *pflag.Flag) {
		for _, part := range []string{"-batch-", "-truncate-", "-version", "-backoff"} {
			flag.Hidden = flag.Hidden || strings.Contains(flag.Name, part)
		}
	})
}

// hold is how long something holds. On the command line 0 is not at all, as
// upstream's; in Options, where 0 is the default, that is a negative duration.
type hold time.Duration

var _ pflag.Value = new(hold)

func newHold(where *time.Duration, otherwise time.Duration) *hold {
	*where = otherwise
	return (*hold)(where)
}

func (h *hold) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d == 0 {
		d = -1
	}
	*h = hold(d)
	return nil
}

func (h *hold) String() string { return max(time.Duration(*h), 0).String() }

func (*hold) Type() string { return "duration" }
