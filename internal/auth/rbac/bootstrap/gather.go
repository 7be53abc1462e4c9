// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kindred-project/kindred/internal/roles"
)

// gather fills in the roles that aggregate others, with just what the
// aggregation controller would write, so that "edit" means something from the
// first moment and the controller finds nothing to do.
func (p *Policy) gather() {
	// View before edit before admin: each gathers the one before.
	for _, name := range []string{"view", "edit", "admin"} {
		i := slices.IndexFunc(p.ClusterRoles, func(r rbacv1.ClusterRole) bool { return r.Name == name })
		// The policy's own selectors are well-formed.
		p.ClusterRoles[i].Rules, _ = roles.Gather(&p.ClusterRoles[i], p.ClusterRoles)
	}
}
