// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Escalation guards the RBAC kinds: nobody may write a role with permissions
// that they do not hold, nor bind one, unless the verbs "escalate" or "bind"
// say that they may. The registries call it before they store.
//
// Whether an update changes more than metadata that garbage collection needs
// (owner references and finalizers) is for the caller to see; such updates are
// not checked, so that collection works without permissions.
type Escalation struct {
	rules      *Resolver
	authorizer authorizer.UnconditionalAuthorizer
}

// NewEscalation returns a guard. The authorizer is the server's whole chain: it
// is asked for the verbs escalate and bind.
func NewEscalation(rules *Resolver, a authorizer.UnconditionalAuthorizer) *Escalation {
	return &Escalation{rules: rules, authorizer: a}
}

// everything is what an aggregation rule may come to gather.
var everything = []rbacv1.PolicyRule{
	{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
	{NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll}},
}

// CheckRole returns a Forbidden error unless the request's user may write the role.
func (e *Escalation) CheckRole(ctx context.Context, role *rbacv1.Role) error {
	if privileged(ctx) || e.mayEscalate(ctx) {
		return nil
	}
	if err := e.ConfirmNoEscalation(ctx, role.Rules); err != nil {
		return apierrors.NewForbidden(rbacv1.Resource("roles"), role.Name, err)
	}
	return nil
}

// CheckClusterRole returns a Forbidden error unless the request's user may write
// the role. The old one is nil for a create: whoever takes away an aggregation
// rule needs the same powers as whoever adds one.
func (e *Escalation) CheckClusterRole(ctx context.Context, role, old *rbacv1.ClusterRole) error {
	if privileged(ctx) || e.mayEscalate(ctx) {
		return nil
	}
	resource := rbacv1.Resource("clusterroles")
	if err := e.ConfirmNoEscalation(ctx, role.Rules); err != nil {
		return apierrors.NewForbidden(resource, role.Name, err)
	}
	if !aggregates(role) && !aggregates(old) {
		return nil
	}
	if err := e.ConfirmNoEscalation(ctx, everything); err != nil {
		return apierrors.NewForbidden(resource, role.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// CheckRoleBinding returns an error unless the request's user may bind the
// role that the binding refers to.
func (e *Escalation) CheckRoleBinding(ctx context.Context, binding *rbacv1.RoleBinding) error {
	return e.checkBinding(ctx, rbacv1.Resource("rolebindings"), binding.Name, binding.RoleRef, binding.Namespace)
}

// CheckClusterRoleBinding is CheckRoleBinding for ClusterRoleBindings.
func (e *Escalation) CheckClusterRoleBinding(ctx context.Context, binding *rbacv1.ClusterRoleBinding) error {
	return e.checkBinding(ctx, rbacv1.Resource("clusterrolebindings"), binding.Name, binding.RoleRef, "")
}

func (e *Escalation) checkBinding(ctx context.Context, resource schema.GroupResource, name string, ref rbacv1.RoleRef, namespace string) error {
	if privileged(ctx) || e.mayBind(ctx, ref, namespace) {
		return nil
	}
	// A role that does not exist is NotFound here: an unprivileged user must
	// not prepare a binding for a role that is created later.
	rules, err := e.rules.RulesOf(ref, namespace)
	if err != nil {
		return err
	}
	if err := e.ConfirmNoEscalation(ctx, rules); err != nil {
		return apierrors.NewForbidden(resource, name, err)
	}
	return nil
}

// ConfirmNoEscalation returns an error which lists the permissions in rules that
// the request's user does not hold in the request's namespace.
func (e *Escalation) ConfirmNoEscalation(ctx context.Context, rules []rbacv1.PolicyRule) error {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return errors.New("no user on context")
	}
	namespace, _ := request.NamespaceFrom(ctx)
	held, resolveErr := e.rules.PolicyRules(u, namespace)
	covered, missing := validation.Covers(held, rules)
	if covered {
		return nil
	}
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), describeMissing(missing))
	if resolveErr != nil {
		message += fmt.Sprintf("; resolution errors: %v", []error{resolveErr})
	}
	return errors.New(message)
}

// privileged says whether the user is above all checks.
func privileged(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// mayEscalate says whether the user holds the verb "escalate" on the role that
// the request is about.
func (e *Escalation) mayEscalate(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return false
	}
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.APIGroup != rbacv1.GroupName {
		return false
	}
	if info.Resource != "roles" && info.Resource != "clusterroles" {
		return false
	}
	return e.allowed(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            "escalate",
		Namespace:       info.Namespace,
		APIGroup:        info.APIGroup,
		APIVersion:      "*",
		Resource:        info.Resource,
		Name:            info.Name,
		ResourceRequest: true,
	})
}

// mayBind says whether the user holds the verb "bind" on a role, in the
// namespace of the binding: a ClusterRole may be given for one namespace alone.
func (e *Escalation) mayBind(ctx context.Context, ref rbacv1.RoleRef, namespace string) bool {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return false
	}
	resource, ok := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	if !ok {
		return false
	}
	return e.allowed(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            "bind",
		Namespace:       namespace,
		APIGroup:        ref.APIGroup,
		APIVersion:      "*",
		Resource:        resource,
		Name:            ref.Name,
		ResourceRequest: true,
	})
}

// allowed asks the authorizer. One that fails has not allowed anything.
func (e *Escalation) allowed(ctx context.Context, attributes authorizer.Attributes) bool {
	decision, _, _ := e.authorizer.Authorize(ctx, attributes)
	return decision == authorizer.DecisionAllow
}

func aggregates(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// describeMissing writes rules of one verb each, as validation.Covers returns
// them, one line for each resource.
func describeMissing(rules []rbacv1.PolicyRule) string {
	lines := make([]string, 0, len(rules))
	for _, rule := range mergeVerbs(rules) {
		lines = append(lines, describeRule(rule))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// mergeVerbs joins rules which differ only in their verb. Those for paths stay
// apart, as in upstream's message.
func mergeVerbs(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type target struct{ group, resource, name string }
	var merged []rbacv1.PolicyRule
	at := map[target]int{}
	for _, rule := range rules {
		if len(rule.Resources) == 0 {
			merged = append(merged, rule)
			continue
		}
		key := target{group: rule.APIGroups[0], resource: rule.Resources[0]}
		if len(rule.ResourceNames) > 0 {
			key.name = rule.ResourceNames[0]
		}
		i, ok := at[key]
		if !ok {
			at[key] = len(merged)
			merged = append(merged, *rule.DeepCopy())
			continue
		}
		merged[i].Verbs = append(merged[i].Verbs, rule.Verbs...)
	}
	return merged
}

func describeRule(rule rbacv1.PolicyRule) string {
	var parts []string
	for _, part := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", rule.APIGroups},
		{"Resources", rule.Resources},
		{"NonResourceURLs", rule.NonResourceURLs},
		{"ResourceNames", rule.ResourceNames},
		{"Verbs", rule.Verbs},
	} {
		if len(part.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
