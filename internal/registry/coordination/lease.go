// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is coordination.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     coordinationv1.GroupName,
		Priority: 16500,
		Scheme:   []func(*runtime.Scheme) error{coordinationv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{Lease}}},
	}
}

// Lease is held by one client until it expires: by a leader, or by a node as its heartbeat.
var Lease = generic.Kind[*coordinationv1.Lease]{
	Name: "Lease", Plural: "leases",
	Metadata: generic.Metadata{AnyFinalizer: true},
	New:      func() *coordinationv1.Lease { return &coordinationv1.Lease{} },
	NewList:  func() runtime.Object { return &coordinationv1.LeaseList{} },
	Prepare:  prepareLease,
	Validate: validateLease,
	// A client that takes over an expired lease must have seen it.
	RequireResourceVersion: true,
	CreateOnUpdate:         true,
	Columns: []generic.Column[*coordinationv1.Lease]{{
		Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
		Cell: func(l *coordinationv1.Lease) any { return ptr.Deref(l.Spec.HolderIdentity, "") },
	}},
}

// prepareLease drops fields of coordinated leader election, an alpha feature that is disabled
// (KEP-4355).
func prepareLease(_ context.Context, l, _ *coordinationv1.Lease) {
	l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
}

func validateLease(_ context.Context, c *check.Checker, l *coordinationv1.Lease) {
	spec, path := &l.Spec, field.NewPath("spec")
	if spec.LeaseDurationSeconds != nil && *spec.LeaseDurationSeconds <= 0 {
		c.Invalid(path.Child("leaseDurationSeconds"), *spec.LeaseDurationSeconds, "must be greater than 0")
	}
	if spec.LeaseTransitions != nil && *spec.LeaseTransitions < 0 {
		c.Invalid(path.Child("leaseTransitions"), *spec.LeaseTransitions, "must be greater than or equal to 0")
	}
}
