// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

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

// Lease is held by one holder for a while: a leader, or a node that lives.
var Lease = generic.Kind[*coordinationv1.Lease]{
	Name: "Lease", Plural: "leases",
	New:      func() *coordinationv1.Lease { return &coordinationv1.Lease{} },
	NewList:  func() runtime.Object { return &coordinationv1.LeaseList{} },
	Validate: validateLease,
	// A lease is taken over by whoever finds it expired: never blindly.
	RequireResourceVersion: true,
	CreateOnUpdate:         true,
	Columns: []generic.Column[*coordinationv1.Lease]{{
		Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
		Cell: func(l *coordinationv1.Lease) any { return ptr.Deref(l.Spec.HolderIdentity, "") },
	}},
}

func validateLease(_ context.Context, l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec, path := &l.Spec, field.NewPath("spec")
	if spec.LeaseDurationSeconds != nil && *spec.LeaseDurationSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *spec.LeaseDurationSeconds, "must be greater than 0"))
	}
	if spec.LeaseTransitions != nil && *spec.LeaseTransitions < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *spec.LeaseTransitions, "must be greater than or equal to 0"))
	}
	if spec.Strategy != nil {
		errs = append(errs, validateStrategy(*spec.Strategy, path.Child("strategy"))...)
	}
	if ptr.Deref(spec.PreferredHolder, "") != "" && ptr.Deref(spec.Strategy, "") == "" {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// validateStrategy accepts Kubernetes' own strategy and those of a domain.
func validateStrategy(strategy coordinationv1.CoordinatedLeaseStrategy, path *field.Path) field.ErrorList {
	if !strings.Contains(string(strategy), "/") {
		if strategy == coordinationv1.OldestEmulationVersion {
			return nil
		}
		return field.ErrorList{field.NotSupported(path, strategy, []coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion})}
	}
	var errs field.ErrorList
	for _, problem := range validation.IsQualifiedName(string(strategy)) {
		errs = append(errs, field.Invalid(path, strategy, problem))
	}
	return errs
}
