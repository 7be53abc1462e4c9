// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// gather fills in the roles that aggregate others, with just what the
// aggregation controller would write, so that "edit" means something from the
// first moment and the controller finds nothing to do.
func (p *Policy) gather() {
	// View before edit before admin: each gathers the one before.
	for _, name := range []string{"view", "edit", "admin"} {
		i := slices.IndexFunc(p.ClusterRoles, func(r rbacv1.ClusterRole) bool { return r.Name == name })
		p.ClusterRoles[i].Rules = gathered(&p.ClusterRoles[i], p.ClusterRoles)
	}
}

// gathered returns the rules of all roles that an aggregating role selects, in
// the order of selectors and names, each rule once.
func gathered(role *rbacv1.ClusterRole, all []rbacv1.ClusterRole) []rbacv1.PolicyRule {
	byName := slices.SortedFunc(slices.Values(all), func(a, b rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	var rules []rbacv1.PolicyRule
	for _, s := range role.AggregationRule.ClusterRoleSelectors {
		// The policy's own selectors are well-formed.
		selector, _ := metav1.LabelSelectorAsSelector(&s)
		for _, other := range byName {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules
}
