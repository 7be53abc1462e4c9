// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"strings"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is storagemigration.k8s.io.
func Group() generic.Group {
	return generic.Group{
		Name:     migrationv1.GroupName,
		Priority: 15800,
		Scheme:   []func(*runtime.Scheme) error{migrationv1.AddToScheme, AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{StorageVersionMigration}}},
	}
}

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder()

// AddToScheme gives a scheme that knows the group's types their declared
// validations.
var AddToScheme = localSchemeBuilder.AddToScheme

// StorageVersionMigration requests one rewrite of all objects of a resource.
var StorageVersionMigration = generic.Kind[*migrationv1.StorageVersionMigration]{
	Name: "StorageVersionMigration", Plural: "storageversionmigrations", ClusterScoped: true,
	New:        func() *migrationv1.StorageVersionMigration { return &migrationv1.StorageVersionMigration{} },
	NewList:    func() runtime.Object { return &migrationv1.StorageVersionMigrationList{} },
	Metadata:   generic.Metadata{ValidateAsNew: true},
	Spec:       func(m *migrationv1.StorageVersionMigration) any { return &m.Spec },
	Status:     func(m *migrationv1.StorageVersionMigration) any { return &m.Status },
	Generation: generic.NoGeneration,
	StatusUpdate: generic.Update[*migrationv1.StorageVersionMigration]{
		Prepare: func(_ context.Context, m, old *migrationv1.StorageVersionMigration) {
			metav1.ResetObjectMetaForStatus(&m.ObjectMeta, &old.ObjectMeta)
		},
		Resets:   []string{"metadata"},
		Validate: validateStatus,
	},
	RequireResourceVersion: true,
	Validate: func(_ context.Context, c *check.Checker, m *migrationv1.StorageVersionMigration) {
		validateResource(c, m.Spec.Resource, field.NewPath("spec", "resource"))
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, m, old *migrationv1.StorageVersionMigration) {
		validateResource(c, m.Spec.Resource, field.NewPath("spec", "resource"))
		c.Immutable(field.NewPath("spec"), m.Spec, old.Spec)
	},
	Table: generic.Table[*migrationv1.StorageVersionMigration]{ColumnsOnly: true}, // upstream's has no age
	Columns: []generic.Column[*migrationv1.StorageVersionMigration]{
		{Name: "Name", PlainName: true, Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
			Cell: func(m *migrationv1.StorageVersionMigration) any { return m.Name }},
		{Name: "Resource", Description: "GroupResource to migrate",
			Cell: func(m *migrationv1.StorageVersionMigration) any { return m.Spec.Resource.String() }},
		{Name: "Status", Description: "Status of the migration", Cell: progress},
	},
}

// progress returns the last condition that is true.
func progress(m *migrationv1.StorageVersionMigration) any {
	out := "Unknown"
	for _, condition := range m.Status.Conditions {
		switch migrationv1.MigrationConditionType(condition.Type) {
		case migrationv1.MigrationRunning, migrationv1.MigrationFailed, migrationv1.MigrationSucceeded:
			if condition.Status == metav1.ConditionTrue {
				out = condition.Type
			}
		}
	}
	return out
}

func validateResource(c *check.Checker, r metav1.GroupResource, path *field.Path) {
	if r.Resource == "" {
		c.Required(path.Child("resource"), "resource is required to be set")
	} else if problems := utilvalidation.IsDNS1035Label(r.Resource); len(problems) > 0 {
		c.Invalid(path.Child("resource"), r.Resource, strings.Join(problems, ","))
	}
	if problems := utilvalidation.IsDNS1123Subdomain(r.Group); r.Group != "" && len(problems) > 0 {
		c.Invalid(path.Child("group"), r.Group, strings.Join(problems, ","))
	}
}

// validateStatus forbids changes of a final state.
func validateStatus(_ context.Context, c *check.Checker, m, old *migrationv1.StorageVersionMigration) {
	now, before := &m.Status, &old.Status
	version, conditions := field.NewPath("status", "resourceVersion"), field.NewPath("status", "conditions")
	if now.ResourceVersion != "" {
		if _, err := resourceversion.CompareResourceVersion(now.ResourceVersion, now.ResourceVersion); err != nil {
			c.Invalid(version, now.ResourceVersion, err.Error())
		}
	}
	c.Add(metav1validation.ValidateConditions(now.Conditions, conditions)...)
	if before.ResourceVersion != "" && before.ResourceVersion != now.ResourceVersion {
		c.Invalid(version, now.ResourceVersion, "field is immutable")
	}
	if is(now, migrationv1.MigrationSucceeded) && is(now, migrationv1.MigrationFailed) {
		c.Invalid(conditions, now.Conditions, "Both success and failed conditions cannot be true at the same time")
	}
	if is(before, migrationv1.MigrationSucceeded) && !is(now, migrationv1.MigrationSucceeded) {
		c.Invalid(conditions, now.Conditions, "Success condition cannot be set to false once it is true")
	}
	if is(before, migrationv1.MigrationFailed) && !is(now, migrationv1.MigrationFailed) {
		c.Invalid(conditions, now.Conditions, "Failed condition cannot be set to false once it is true")
	}
}

func is(status *migrationv1.StorageVersionMigrationStatus, condition migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(status.Conditions, string(condition))
}
