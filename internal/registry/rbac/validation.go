// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateRole(_ context.Context, r *rbacv1.Role) field.ErrorList {
	return validateRules(r.Rules, true)
}

func validateClusterRole(_ context.Context, r *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector := &r.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path.Index(i))...)
		if parsed, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), parsed, "invalid label selector."))
		}
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		errs = append(errs, validateRule(rule, namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

// validateRule wants verbs, and either resources or URLs.
func validateRule(rule rbacv1.PolicyRule, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(path.Child("verbs"), "verbs must contain at least one value").MarkCoveredByDeclarative())
	}
	if len(rule.NonResourceURLs) > 0 {
		urls := path.Child("nonResourceURLs")
		if namespaced {
			errs = append(errs, field.Invalid(urls, rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(urls, rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func validateRoleBinding(_ context.Context, b *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, "Role", "ClusterRole"), validateSubjects(b.Subjects, true)...)
}

func validateClusterRoleBinding(_ context.Context, b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, "ClusterRole"), validateSubjects(b.Subjects, false)...)
}

// A binding's role never changes: who may edit subjects must not be able to
// give another role.
func validateRoleBindingUpdate(ctx context.Context, b, old *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleBinding(ctx, b), sameRoleRef(b.RoleRef, old.RoleRef).MarkAlpha()...)
}

func validateClusterRoleBindingUpdate(ctx context.Context, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateClusterRoleBinding(ctx, b), sameRoleRef(b.RoleRef, old.RoleRef)...)
}

func sameRoleRef(ref, old rbacv1.RoleRef) field.ErrorList {
	return validation.ValidateImmutableField(ref, old, field.NewPath("roleRef")).WithOrigin("immutable").MarkCoveredByDeclarative()
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	known := false
	for _, kind := range kinds {
		known = known || ref.Kind == kind
	}
	if !known {
		errs = append(errs, field.NotSupported(path.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		return append(errs, field.Required(path.Child("name"), "").MarkCoveredByDeclarative())
	}
	for _, problem := range pathvalidation.ValidatePathSegmentName(ref.Name, false) {
		errs = append(errs, field.Invalid(path.Child("name"), ref.Name, problem))
	}
	return errs
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, subject := range subjects {
		errs = append(errs, validateSubject(subject, namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "").MarkCoveredByDeclarative())
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			for _, problem := range validation.ValidateServiceAccountName(s.Name, false) {
				errs = append(errs, field.Invalid(path.Child("name"), s.Name, problem))
			}
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(path.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}
