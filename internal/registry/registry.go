// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry lists the built-in API groups. Each group is a package below
// this one, each kind one value in one file of its group.
package registry

import (
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kindred-project/kindred/internal/registry/admissionregistration"
	"github.com/kindred-project/kindred/internal/registry/apps"
	"github.com/kindred-project/kindred/internal/registry/authentication"
	"github.com/kindred-project/kindred/internal/registry/authorization"
	"github.com/kindred-project/kindred/internal/registry/autoscaling"
	"github.com/kindred-project/kindred/internal/registry/batch"
	"github.com/kindred-project/kindred/internal/registry/certificates"
	"github.com/kindred-project/kindred/internal/registry/coordination"
	"github.com/kindred-project/kindred/internal/registry/core"
	"github.com/kindred-project/kindred/internal/registry/discovery"
	"github.com/kindred-project/kindred/internal/registry/events"
	"github.com/kindred-project/kindred/internal/registry/flowcontrol"
	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/registry/networking"
	"github.com/kindred-project/kindred/internal/registry/node"
	"github.com/kindred-project/kindred/internal/registry/policy"
	"github.com/kindred-project/kindred/internal/registry/rbac"
	"github.com/kindred-project/kindred/internal/registry/resource"
	"github.com/kindred-project/kindred/internal/registry/scheduling"
	"github.com/kindred-project/kindred/internal/registry/storage"
	"github.com/kindred-project/kindred/internal/registry/storagemigration"
)

// Dependencies are what some kinds need besides storage.
type Dependencies struct {
	Core           core.Dependencies
	Authentication authentication.Dependencies
	Authorizer     authorizer.Authorizer
	Rules          authorizer.RuleResolver
	Escalation     rbac.Escalation
	Extending      admissionregistration.Dependencies
	Devices        resource.Dependencies
}

// Groups are all built-in groups.
func Groups(d Dependencies) []generic.Group {
	return []generic.Group{
		core.Group(d.Core),
		apps.Group(),
		apps.Extensions(),
		batch.Group(),
		autoscaling.Group(),
		events.Group(),
		authentication.Group(d.Authentication),
		authorization.Group(d.Authorizer, d.Rules),
		rbac.Group(d.Escalation),
		certificates.Group(d.Authorizer),
		networking.Group(),
		policy.Group(),
		storage.Group(),
		scheduling.Group(),
		coordination.Group(),
		node.Group(),
		discovery.Group(),
		admissionregistration.Group(d.Extending),
		flowcontrol.Group(),
		storagemigration.Group(),
		resource.Group(d.Devices),
	}
}
