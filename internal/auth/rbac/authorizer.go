// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorizer allows what the rules of a Resolver allow.
type Authorizer struct {
	rules *Resolver
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// NewAuthorizer returns an authorizer with the rules of a resolver.
func NewAuthorizer(rules *Resolver) *Authorizer {
	return &Authorizer{rules: rules}
}

// Authorize implements authorizer.Authorizer. It never denies.
func (a *Authorizer) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	u := request.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	keys := keysOf(u)
	var errs []error
	for g := range a.rules.grants(keys, request.GetNamespace()) {
		rules, err := a.rules.RulesOf(g.role, g.namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if anyAllows(rules, request) {
			return authorizer.DecisionAllow, "RBAC: allowed by " + g.describe(keys), nil
		}
	}
	if len(errs) == 0 {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionNoOpinion, "RBAC: " + utilerrors.NewAggregate(errs).Error(), nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; RBAC has no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, request))
}

// EvaluateConditions implements authorizer.Authorizer; RBAC has no conditions.
func (*Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver, which answers
// SelfSubjectRulesReviews (`kubectl auth can-i --list`).
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var (
		resources    []authorizer.ResourceRuleInfo
		nonResources []authorizer.NonResourceRuleInfo
	)
	rules, err := a.rules.PolicyRules(u, namespace)
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs:         rule.Verbs,
				APIGroups:     rule.APIGroups,
				Resources:     rule.Resources,
				ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			nonResources = append(nonResources, &authorizer.DefaultNonResourceRuleInfo{
				Verbs:           rule.Verbs,
				NonResourceURLs: rule.NonResourceURLs,
			})
		}
	}
	return resources, nonResources, false, err
}
