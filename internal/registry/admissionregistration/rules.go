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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// This file holds the rules that select requests for webhooks and policies.

// The values of enumerations, sorted as messages list them.
var (
	failurePolicies      = []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore}
	matchPolicies        = []admissionv1.MatchPolicyType{admissionv1.Equivalent, admissionv1.Exact}
	scopes               = []admissionv1.ScopeType{admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope}
	reinvocationPolicies = []admissionv1.ReinvocationPolicyType{admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy}
	operations           = []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update}
	// A deleted object cannot be mutated.
	mutatingOperations = []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update}
)

const wildcard = "*"

// requiredOneOf requires a supported value. Defaulting sets a missing one.
func requiredOneOf[T ~string](c *check.Checker, path *field.Path, value *T, allowed ...T) {
	if value == nil {
		c.Required(path, "")
	}
	check.OptionalOneOf(c, path, value, allowed...)
}

func validateRuleWithOperations(c *check.Checker, r *admissionv1.RuleWithOperations, path *field.Path) {
	ops := path.Child("operations")
	if len(r.Operations) == 0 {
		c.Required(ops, "")
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		c.Invalid(ops, r.Operations, "if '*' is present, must not specify other operations")
	}
	for i := range r.Operations {
		check.OneOf(c, ops.Index(i), r.Operations[i], operations...)
	}
	validateRule(c, &r.Rule, path)
}

func validateRule(c *check.Checker, r *admissionv1.Rule, path *field.Path) {
	groups, versions := path.Child("apiGroups"), path.Child("apiVersions")
	if len(r.APIGroups) == 0 { // "" is the core group
		c.Required(groups, "")
	}
	if len(r.APIGroups) > 1 && slices.Contains(r.APIGroups, wildcard) {
		c.Invalid(groups, r.APIGroups, "if '*' is present, must not specify other API groups")
	}
	if len(r.APIVersions) == 0 {
		c.Required(versions, "")
	}
	if len(r.APIVersions) > 1 && slices.Contains(r.APIVersions, wildcard) {
		c.Invalid(versions, r.APIVersions, "if '*' is present, must not specify other API versions")
	}
	for i, version := range r.APIVersions {
		if version == "" {
			c.Required(versions.Index(i), "")
		}
	}
	validateResources(c, r.Resources, path.Child("resources"))
	check.OptionalOneOf(c, path.Child("scope"), r.Scope, scopes...)
}

// validateResources forbids redundant entries: "pods/*" includes "pods/status".
func validateResources(c *check.Checker, resources []string, path *field.Path) {
	if len(resources) == 0 {
		c.Required(path, "")
		return
	}
	allSubresources, allResources := sets.New[string](), sets.New[string]()
	lastIsPlain := false
	for i, name := range resources {
		if name == "" {
			c.Required(path.Index(i), "")
			continue
		}
		resource, sub, isSub := strings.Cut(name, "/")
		if !isSub {
			lastIsPlain = name != wildcard
			continue
		}
		if allSubresources.Has(resource) {
			c.Invalid(path.Index(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name))
		}
		if allResources.Has(sub) {
			c.Invalid(path.Index(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name))
		}
		if sub == wildcard {
			allSubresources.Insert(resource)
		}
		if resource == wildcard {
			allResources.Insert(sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		c.Invalid(path, resources, "if '*/*' is present, must not specify other resources")
	}
	// Like upstream, consider only the last resource without a subresource.
	if lastIsPlain && slices.Contains(resources, wildcard) {
		c.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources")
	}
}

// validateMatchResources checks what a policy or a binding applies to.
func validateMatchResources(c *check.Checker, m *admissionv1.MatchResources, path *field.Path) {
	if m == nil {
		return
	}
	requiredOneOf(c, path.Child("matchPolicy"), m.MatchPolicy, matchPolicies...)
	requiredSelector(c, m.NamespaceSelector, path.Child("namespaceSelector"))
	requiredSelector(c, m.ObjectSelector, path.Child("objectSelector"))
	for i := range m.ResourceRules {
		validateNamedRule(c, &m.ResourceRules[i], path.Child("resourceRules").Index(i))
	}
	for i := range m.ExcludeResourceRules {
		validateNamedRule(c, &m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))
	}
}

// validateConstraints checks which objects a policy matches. It needs rules, which determine the
// types of its expressions.
func validateConstraints(c *check.Checker, m *admissionv1.MatchResources, path *field.Path) {
	if m == nil {
		c.Required(path, "")
		return
	}
	validateMatchResources(c, m, path)
	if len(m.ResourceRules) == 0 {
		c.Required(path.Child("resourceRules"), "")
	}
}

// validateMutable refuses operations that have no object to mutate.
func validateMutable(c *check.Checker, m *admissionv1.MatchResources, path *field.Path) {
	if m == nil {
		return
	}
	for _, rule := range m.ResourceRules {
		for i := range rule.Operations {
			check.OneOf(c, path.Child("resourceRules", "operations"), rule.Operations[i], mutatingOperations...)
		}
	}
}

func requiredSelector(c *check.Checker, s *metav1.LabelSelector, path *field.Path) {
	if s == nil {
		c.Required(path, "")
		return
	}
	c.LabelSelector(path, s)
}

func validateNamedRule(c *check.Checker, r *admissionv1.NamedRuleWithOperations, path *field.Path) {
	seen := sets.New[string]()
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		c.Invalid(at, name, content.IsPathSegmentName(name)...)
		check.Unique(c, at, seen, name)
	}
	validateRuleWithOperations(c, &r.RuleWithOperations, path)
}

// staticSuffix ends the names of configurations that a server loads from files.
const staticSuffix = ".static.k8s.io"

var staticProblem = fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix)

// validateName refuses the names of static configurations.
func validateName(c *check.Checker, name string) {
	if strings.HasSuffix(name, staticSuffix) {
		c.Invalid(field.NewPath("metadata", "name"), name, staticProblem)
	}
}

// warnOfName warns about an object that got such a name before they were reserved.
func warnOfName(name string) []string {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return []string{"metadata.name: " + staticProblem}
}

// orUnset returns the text of a cell, or <unset> if it is empty.
func orUnset(text string) string { return cmp.Or(text, "<unset>") }
