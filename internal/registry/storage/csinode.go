// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// CSINode lists the drivers of a node, whose name it has.
var CSINode = generic.Kind[*storagev1.CSINode]{
	Name: "CSINode", Plural: "csinodes", ClusterScoped: true,
	Metadata:   generic.Metadata{ValidateAsNew: true},
	New:        func() *storagev1.CSINode { return &storagev1.CSINode{} },
	NewList:    func() runtime.Object { return &storagev1.CSINodeList{} },
	Spec:       func(n *storagev1.CSINode) any { return &n.Spec },
	Status:     func(n *storagev1.CSINode) any { return &n.Status },
	Generation: generic.NoGeneration,
	StatusUpdate: generic.Update[*storagev1.CSINode]{
		// All that a status could hold, the health of volumes, is alpha (KEP-1432).
		Prepare: func(_ context.Context, n, old *storagev1.CSINode) {
			n.Status = old.Status
			metav1.ResetObjectMetaForStatus(&n.ObjectMeta, &old.ObjectMeta)
		},
		Resets: []string{"metadata"},
	},
	Validate:               validateCSINode,
	ValidateUpdate:         validateCSINodeUpdate,
	RequireResourceVersion: true,
	Deletion:               generic.Deletion[*storagev1.CSINode]{ReturnObject: true},
	Columns: []generic.Column[*storagev1.CSINode]{{
		Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node",
		Cell: func(n *storagev1.CSINode) any { return len(n.Spec.Drivers) },
	}},
}

var driversPath = specPath.Child("drivers")

func validateCSINode(_ context.Context, n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range n.Spec.Drivers {
		driver, path := &n.Spec.Drivers[i], driversPath.Index(i)
		errs = append(errs, validateNodeDriver(driver, path)...)
		if seen.Has(driver.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), driver.Name))
		}
		seen.Insert(driver.Name)
		errs = append(errs, validateTopologyKeys(driver.TopologyKeys, path)...)
	}
	return errs
}

func validateNodeDriver(driver *storagev1.CSINodeDriver, path *field.Path) field.ErrorList {
	const longest = 256
	errs := podspec.ValidateCSIDriverName(driver.Name, path.Child("name"))
	id := path.Child("nodeID")
	if driver.NodeID == "" {
		errs = append(errs, field.Required(id, ""))
	}
	if len(driver.NodeID) > longest {
		errs = append(errs, field.Invalid(id, driver.NodeID, fmt.Sprintf("must be %d characters or less", longest)))
	}
	if a := driver.Allocatable; a != nil && a.Count != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*a.Count), path.Child("allocatable", "count"))...)
	}
	return errs
}

// validateTopologyKeys reports what is wrong with a key at its driver.
func validateTopologyKeys(keys []string, driver *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for _, key := range keys {
		if key == "" {
			errs = append(errs, field.Required(driver, key))
		}
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(driver, key))
		}
		seen.Insert(key)
		errs = append(errs, generic.Invalid(driver, key, utilvalidation.IsQualifiedName(key))...)
	}
	return errs
}

// validateCSINodeUpdate: drivers come and go; of one that stays, only how many
// volumes it can hold may change.
func validateCSINodeUpdate(ctx context.Context, n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(ctx, n)
	for _, before := range old.Spec.Drivers {
		for _, driver := range n.Spec.Drivers {
			if driver.Name != before.Name {
				continue
			}
			driver.Allocatable, before.Allocatable = nil, nil
			errs = append(errs, apivalidation.ValidateImmutableField(driver, before, driversPath)...)
		}
	}
	return errs
}
