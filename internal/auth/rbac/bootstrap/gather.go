// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kindred-project/kindred/internal/roles"
)

// gather sets the rules of the roles that aggregate others to those that the aggregation controller
// would write, so that "edit" works at once and the controller has nothing to do.
func (p *Policy) gather() {
	// View before edit before admin: each aggregates the one before.
	for _, name := range []string{"view", "edit", "admin"} {
		i := slices.IndexFunc(p.ClusterRoles, func(r rbacv1.ClusterRole) bool { return r.Name == name })
		// The policy's own selectors are well-formed.
		p.ClusterRoles[i].Rules, _ = roles.Gather(&p.ClusterRoles[i], p.ClusterRoles)
	}
}
