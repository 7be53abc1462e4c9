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

// Escalation prevents privilege escalation through the RBAC kinds: a user may not write or bind a
// role with permissions that the user does not have, unless the verbs "escalate" or "bind" allow
// it. The registries call it before they store an object.
//
// Updates that change only metadata for garbage collection (owner references and finalizers) must
// not be checked, so that collection works without permissions. The caller finds out which those
// are.
type Escalation struct {
	rules      *Resolver
	authorizer authorizer.UnconditionalAuthorizer
}

// NewEscalation returns an Escalation. The authorizer, which decides about the verbs escalate and
// bind, is the server's chain.
func NewEscalation(rules *Resolver, a authorizer.UnconditionalAuthorizer) *Escalation {
	return &Escalation{rules: rules, authorizer: a}
}

// everything holds the rules that an aggregation rule may come to contain.
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

// CheckClusterRole returns a Forbidden error unless the request's user may write the role. The old
// role is nil for a create. Removing an aggregation rule requires the same permissions as adding
// one.
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
	// If the role does not exist, this is a NotFound error: an unprivileged user must not prepare a
	// binding for a role that is created later.
	rules, err := e.rules.RulesOf(ref, namespace)
	if err != nil {
		return err
	}
	if err := e.ConfirmNoEscalation(ctx, rules); err != nil {
		return apierrors.NewForbidden(resource, name, err)
	}
	return nil
}

// ConfirmNoEscalation returns an error that lists the permissions in rules that the request's user
// does not have in the request's namespace.
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

// privileged reports whether the user is exempt from all checks.
func privileged(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// mayEscalate reports whether the user may "escalate" the role of the request.
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

// mayBind reports whether the user may "bind" a role in the namespace of the binding: a ClusterRole
// can be bound in one namespace.
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

// allowed reports whether the authorizer allows a request. It does not if it fails.
func (e *Escalation) allowed(ctx context.Context, attributes authorizer.Attributes) bool {
	decision, _, _ := e.authorizer.Authorize(ctx, attributes)
	return decision == authorizer.DecisionAllow
}

func aggregates(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// describeMissing formats rules of one verb each, as validation.Covers returns them, with a line
// for each resource.
func describeMissing(rules []rbacv1.PolicyRule) string {
	lines := make([]string, 0, len(rules))
	for _, rule := range mergeVerbs(rules) {
		lines = append(lines, describeRule(rule))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// mergeVerbs merges rules that differ only in their verb. Rules for paths stay separate, as in
// upstream's message.
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
