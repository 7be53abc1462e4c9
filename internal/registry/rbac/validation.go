// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func validateRole(_ context.Context, c *check.Checker, r *rbacv1.Role) {
	validateRules(c, r.Rules, true)
}

func validateClusterRole(_ context.Context, c *check.Checker, r *rbacv1.ClusterRole) {
	validateRules(c, r.Rules, false)
	if r.AggregationRule == nil {
		return
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		c.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector := &r.AggregationRule.ClusterRoleSelectors[i]
		c.LabelSelector(path.Index(i), selector)
		if parsed, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			c.Invalid(path.Index(i), parsed, "invalid label selector.")
		}
	}
}

func validateRules(c *check.Checker, rules []rbacv1.PolicyRule, namespaced bool) {
	for i, rule := range rules {
		validateRule(c, rule, namespaced, field.NewPath("rules").Index(i))
	}
}

// validateRule requires verbs, and either resources or URLs.
func validateRule(c *check.Checker, rule rbacv1.PolicyRule, namespaced bool, path *field.Path) {
	if len(rule.Verbs) == 0 {
		c.Declared().Required(path.Child("verbs"), "verbs must contain at least one value")
	}
	if len(rule.NonResourceURLs) > 0 {
		urls := path.Child("nonResourceURLs")
		if namespaced {
			c.Invalid(urls, rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			c.Invalid(urls, rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")
		}
		return
	}
	if len(rule.APIGroups) == 0 {
		c.Required(path.Child("apiGroups"), "resource rules must supply at least one api group")
	}
	if len(rule.Resources) == 0 {
		c.Required(path.Child("resources"), "resource rules must supply at least one resource")
	}
}

func validateRoleBinding(_ context.Context, c *check.Checker, b *rbacv1.RoleBinding) {
	validateRoleRef(c, b.RoleRef, "Role", "ClusterRole")
	validateSubjects(c, b.Subjects, true)
}

func validateClusterRoleBinding(_ context.Context, c *check.Checker, b *rbacv1.ClusterRoleBinding) {
	validateRoleRef(c, b.RoleRef, "ClusterRole")
	validateSubjects(c, b.Subjects, false)
}

// A binding's role is immutable: permission to edit subjects must not suffice to grant another
// role.
func validateRoleBindingUpdate(ctx context.Context, c *check.Checker, b, old *rbacv1.RoleBinding) {
	validateRoleBinding(ctx, c, b)
	c.Add(check.Run(func(c *check.Checker) { sameRoleRef(c, b.RoleRef, old.RoleRef) }).MarkAlpha()...)
}

func validateClusterRoleBindingUpdate(ctx context.Context, c *check.Checker, b, old *rbacv1.ClusterRoleBinding) {
	validateClusterRoleBinding(ctx, c, b)
	sameRoleRef(c, b.RoleRef, old.RoleRef)
}

func sameRoleRef(c *check.Checker, ref, old rbacv1.RoleRef) {
	c.Declared().Immutable(field.NewPath("roleRef"), ref, old)
}

func validateRoleRef(c *check.Checker, ref rbacv1.RoleRef, kinds ...string) {
	path := field.NewPath("roleRef")
	check.OneOf(c, path.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)
	check.OneOf(c, path.Child("kind"), ref.Kind, kinds...)
	if ref.Name == "" {
		c.Declared().Required(path.Child("name"), "")
		return
	}
	c.Invalid(path.Child("name"), ref.Name, pathvalidation.ValidatePathSegmentName(ref.Name, false)...)
}

func validateSubjects(c *check.Checker, subjects []rbacv1.Subject, namespaced bool) {
	for i, subject := range subjects {
		validateSubject(c, subject, namespaced, field.NewPath("subjects").Index(i))
	}
}

func validateSubject(c *check.Checker, s rbacv1.Subject, namespaced bool, path *field.Path) {
	if s.Name == "" {
		c.Declared().Required(path.Child("name"), "")
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			c.Invalid(path.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false)...)
		}
		check.OneOf(c, path.Child("apiGroup"), s.APIGroup, "")
		if !namespaced && s.Namespace == "" {
			c.Required(path.Child("namespace"), "")
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		check.OneOf(c, path.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)
	default:
		check.OneOf(c, path.Child("kind"), s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)
	}
}
