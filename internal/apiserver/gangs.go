// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/kindred-project/kindred/internal/auth/rbac/bootstrap"
)

// ServesGangs reports whether PodGroups are served. Upstream has a feature gate for them; here the
// API is the gate (docs/decisions/0016-gangs.md).
func (s *Server) ServesGangs() bool {
	return s.enabled.ResourceEnabled(schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups"))
}

// policyFeatures returns the features that the bootstrap roles depend on.
func (s *Server) policyFeatures() bootstrap.Optional {
	return bootstrap.Optional{Gangs: s.ServesGangs()}
}
