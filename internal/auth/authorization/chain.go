// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/options"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/kindred-project/kindred/internal/auth/configfile"
)

// Link is an authorizer that can also list what it allows.
type Link interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Chain is an authorizer that calls its links in order. The first one with an opinion decides.
type Chain struct{ current atomic.Pointer[links] }

var _ Link = &Chain{}

// links are the links of one configuration as a single authorizer.
type links struct {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// builtIn are the links that the cluster provides.
type builtIn map[apiserver.AuthorizerType]Link

// Chain returns the chain. If it is configured by a file, the chain follows the file until ctx is
// done.
func (c Config) Chain(ctx context.Context, nodes, roles Link) (*Chain, error) {
	provided := builtIn{typeNode: nodes, typeRBAC: roles}
	if c.configuration == nil {
		c.configuration = standard()
	}
	first, err := provided.links(c.configuration)
	if err != nil {
		return nil, err
	}
	chain := &Chain{}
	chain.current.Store(first)
	if c.file == "" {
		return chain, nil
	}
	go configfile.Follow(ctx, c.file, c.content, func(content []byte) error {
		configuration, err := parse(content)
		if err != nil {
			return err
		}
		next, err := provided.links(configuration)
		if err != nil {
			return err
		}
		chain.current.Store(next)
		return nil
	})
	return chain, nil
}

// links creates the links of a configuration. The first one always allows administrators.
func (b builtIn) links(configuration *apiserver.AuthorizationConfiguration) (*links, error) {
	authorizers := []union.NamedAuthorizer{{
		AuthorizerName: "kubernetes.io/system-privileged-group", // upstream's name for it
		Authorizer:     authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
	}}
	var rules []authorizer.RuleResolver
	for _, one := range configuration.Authorizers {
		link, err := b.link(one)
		if err != nil {
			return nil, fmt.Errorf("authorizer %s: %w", one.Name, err)
		}
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: one.Name, Authorizer: link})
		rules = append(rules, link)
	}
	united, err := union.New(authorizers...)
	if err != nil {
		return nil, err
	}
	return &links{united, union.NewRuleResolvers(rules...)}, nil
}

// link creates or returns the authorizer that an entry of a configuration describes.
func (b builtIn) link(configuration apiserver.AuthorizerConfiguration) (Link, error) {
	switch configuration.Type {
	case apiserver.TypeWebhook:
		return newWebhook(configuration.Name, configuration.Webhook)
	case typeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case typeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	}
	return b[configuration.Type], nil // parse has checked the types
}

func newWebhook(name string, c *apiserver.WebhookConfiguration) (Link, error) {
	client, err := utilwebhook.LoadKubeconfig(*c.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	client.Timeout = c.Timeout.Duration
	onError := authorizer.DecisionNoOpinion
	if c.FailurePolicy == apiserver.FailurePolicyDeny {
		onError = authorizer.DecisionDeny
	}
	authorized, unauthorized := c.AuthorizedTTL.Duration, c.UnauthorizedTTL.Duration
	if !c.CacheAuthorizedRequests {
		authorized = 0
	}
	if !c.CacheUnauthorizedRequests {
		unauthorized = 0
	}
	return webhook.New(client, c.SubjectAccessReviewVersion, authorized, unauthorized, *options.DefaultAuthWebhookRetryBackoff(),
		onError, c.MatchConditions, name, webhookMetrics{WebhookMetrics: metrics.NewWebhookMetrics(), MatcherMetrics: cel.NewMatcherMetrics()}, cel.NewDefaultCompiler())
}

// webhookMetrics are the metrics that upstream's API server reports. Their registry is global:
// clusters in one process share the series.
type webhookMetrics struct {
	metrics.NoopRequestMetrics
	metrics.WebhookMetrics
	cel.MatcherMetrics
}

// Authorize implements authorizer.Authorizer.
func (c *Chain) Authorize(ctx context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	return c.current.Load().Authorize(ctx, request)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (c *Chain) ConditionsAwareAuthorize(ctx context.Context, request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return c.current.Load().ConditionsAwareAuthorize(ctx, request)
}

// EvaluateConditions implements authorizer.Authorizer.
func (c *Chain) EvaluateConditions(ctx context.Context, decision authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return c.current.Load().EvaluateConditions(ctx, decision, data)
}

// RulesFor implements authorizer.RuleResolver.
func (c *Chain) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return c.current.Load().RulesFor(ctx, u, namespace)
}
