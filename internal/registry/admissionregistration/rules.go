// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file is which requests webhooks and policies are asked about.

// The values of enumerations, sorted as messages list them.
var (
	failurePolicies      = []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore}
	matchPolicies        = []admissionv1.MatchPolicyType{admissionv1.Equivalent, admissionv1.Exact}
	scopes               = []admissionv1.ScopeType{admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope}
	reinvocationPolicies = []admissionv1.ReinvocationPolicyType{admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy}
	operations           = []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update}
	// What is deleted has nothing that could be mutated.
	mutatingOperations = []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update}
)

const wildcard = "*"

// oneOf checks an enumeration that may be left out.
func oneOf[T ~string](value *T, path *field.Path, allowed []T) field.ErrorList {
	if value == nil || slices.Contains(allowed, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, allowed)}
}

// requiredOneOf checks an enumeration that defaults have filled in.
func requiredOneOf[T ~string](value *T, path *field.Path, allowed []T) field.ErrorList {
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return oneOf(value, path, allowed)
}

func validateRuleWithOperations(r *admissionv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ops := path.Child("operations")
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(ops, ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(ops, r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i := range r.Operations {
		errs = append(errs, oneOf(&r.Operations[i], ops.Index(i), operations)...)
	}
	return append(errs, validateRule(&r.Rule, path)...)
}

func validateRule(r *admissionv1.Rule, path *field.Path) field.ErrorList {
	groups, versions := path.Child("apiGroups"), path.Child("apiVersions")
	var errs field.ErrorList
	if len(r.APIGroups) == 0 { // "" is the core group
		errs = append(errs, field.Required(groups, ""))
	}
	if len(r.APIGroups) > 1 && slices.Contains(r.APIGroups, wildcard) {
		errs = append(errs, field.Invalid(groups, r.APIGroups, "if '*' is present, must not specify other API groups"))
	}
	if len(r.APIVersions) == 0 {
		errs = append(errs, field.Required(versions, ""))
	}
	if len(r.APIVersions) > 1 && slices.Contains(r.APIVersions, wildcard) {
		errs = append(errs, field.Invalid(versions, r.APIVersions, "if '*' is present, must not specify other API versions"))
	}
	for i, version := range r.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(versions.Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	return append(errs, oneOf(r.Scope, path.Child("scope"), scopes)...)
}

// validateResources wants nothing said twice: "pods/*" leaves nothing for
// "pods/status" to add.
func validateResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	allSubresources, allResources := sets.New[string](), sets.New[string]()
	lastIsPlain := false
	for i, name := range resources {
		if name == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		resource, sub, isSub := strings.Cut(name, "/")
		if !isSub {
			lastIsPlain = name != wildcard
			continue
		}
		if allSubresources.Has(resource) {
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name)))
		}
		if allResources.Has(sub) {
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name)))
		}
		if sub == wildcard {
			allSubresources.Insert(resource)
		}
		if resource == wildcard {
			allResources.Insert(sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	// Upstream looks at the last of those without subresource alone.
	if lastIsPlain && slices.Contains(resources, wildcard) {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// validateMatchResources checks what a policy or a binding applies to.
func validateMatchResources(m *admissionv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := requiredOneOf(m.MatchPolicy, path.Child("matchPolicy"), matchPolicies)
	errs = append(errs, requiredSelector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, requiredSelector(m.ObjectSelector, path.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

// validateConstraints are those of a policy: without rules nobody could know the
// types that its expressions are about.
func validateConstraints(m *admissionv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validateMatchResources(m, path)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(path.Child("resourceRules"), ""))
	}
	return errs
}

// validateMutable refuses operations by which nothing can be mutated.
func validateMutable(m *admissionv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range m.ResourceRules {
		for i := range rule.Operations {
			errs = append(errs, oneOf(&rule.Operations[i], path.Child("resourceRules", "operations"), mutatingOperations)...)
		}
	}
	return errs
}

func requiredSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateNamedRule(r *admissionv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, invalid(at, name, content.IsPathSegmentName(name))...)
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen.Insert(name)
	}
	return append(errs, validateRuleWithOperations(&r.RuleWithOperations, path)...)
}

func invalid(path *field.Path, value any, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}

// staticSuffix ends the names of configurations that a server loads from files.
const staticSuffix = ".static.k8s.io"

var staticProblem = fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix)

// validateName keeps new objects away from the names of static ones.
func validateName(name string) field.ErrorList {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, staticProblem)}
}

// warnOfName tells who updates an object that has such a name from before.
func warnOfName(name string) []string {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return []string{"metadata.name: " + staticProblem}
}

// unset is a cell's text, or <unset> for an empty one.
func unset(text string) string { return cmp.Or(text, "<unset>") }
