// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// allows reports whether a role of the policy allows a verb on a resource of scheduling.k8s.io.
func (p *Policy) allows(role, verb, resource string) bool {
	for _, r := range p.ClusterRoles {
		if r.Name == role && slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, scheduling) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
		}) {
			return true
		}
	}
	return false
}

func TestGangs(t *testing.T) {
	on, off := Default(Optional{Gangs: true}), Default(Optional{})
	for _, test := range []struct{ role, verb, resource string }{
		{"view", "watch", "podgroups/status"}, {"view", "get", "workloads"},
		{"edit", "deletecollection", "podgroups"}, {"admin", "create", "workloads"},
		{"system:kube-scheduler", "watch", "podgroups"}, {"system:kube-scheduler", "patch", "podgroups/status"},
		{"system:controller:podgroup-protection-controller", "update", "podgroups"},
		{"system:controller:resource-claim-controller", "watch", "podgroups"}, {"system:controller:resource-claim-controller", "patch", "podgroups/status"},
	} {
		if !on.allows(test.role, test.verb, test.resource) || off.allows(test.role, test.verb, test.resource) {
			t.Errorf("%v", test)
		}
	}
	if on.allows("view", "create", "podgroups") || on.allows("edit", "patch", "podgroups/status") {
		t.Error("the roles allow too much")
	}
}
