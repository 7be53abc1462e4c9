// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// CSINode lists the drivers of the node with the same name.
var CSINode = generic.Kind[*storagev1.CSINode]{
	Name: "CSINode", Plural: "csinodes", ClusterScoped: true,
	Metadata:   generic.Metadata{ValidateAsNew: true},
	New:        func() *storagev1.CSINode { return &storagev1.CSINode{} },
	NewList:    func() runtime.Object { return &storagev1.CSINodeList{} },
	Spec:       func(n *storagev1.CSINode) any { return &n.Spec },
	Status:     func(n *storagev1.CSINode) any { return &n.Status },
	Generation: generic.NoGeneration,
	StatusUpdate: generic.Update[*storagev1.CSINode]{
		// The only field of the status, the health of volumes, is alpha (KEP-1432).
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

func validateCSINode(_ context.Context, c *check.Checker, n *storagev1.CSINode) {
	seen := sets.New[string]()
	for i := range n.Spec.Drivers {
		driver, path := &n.Spec.Drivers[i], driversPath.Index(i)
		validateNodeDriver(c, driver, path)
		check.Unique(c, path.Child("name"), seen, driver.Name)
		validateTopologyKeys(c, driver.TopologyKeys, path)
	}
}

func validateNodeDriver(c *check.Checker, driver *storagev1.CSINodeDriver, path *field.Path) {
	const longest = 256
	c.DriverName(path.Child("name"), driver.Name)
	id := path.Child("nodeID")
	c.NonEmpty(id, driver.NodeID)
	if len(driver.NodeID) > longest {
		c.Invalid(id, driver.NodeID, fmt.Sprintf("must be %d characters or less", longest))
	}
	if a := driver.Allocatable; a != nil && a.Count != nil {
		c.NonNegative(path.Child("allocatable", "count"), int64(*a.Count))
	}
}

// validateTopologyKeys reports errors of keys at the path of the driver.
func validateTopologyKeys(c *check.Checker, keys []string, driver *field.Path) {
	seen := sets.New[string]()
	for _, key := range keys {
		if key == "" {
			c.Required(driver, key)
		}
		check.Unique(c, driver, seen, key)
		c.QualifiedName(driver, key)
	}
}

// validateCSINodeUpdate allows drivers to be added and removed. Of an existing driver only the
// number of volumes may change.
func validateCSINodeUpdate(ctx context.Context, c *check.Checker, n, old *storagev1.CSINode) {
	validateCSINode(ctx, c, n)
	for _, before := range old.Spec.Drivers {
		for _, driver := range n.Spec.Drivers {
			if driver.Name != before.Name {
				continue
			}
			driver.Allocatable, before.Allocatable = nil, nil
			c.Immutable(driversPath, driver, before)
		}
	}
}
