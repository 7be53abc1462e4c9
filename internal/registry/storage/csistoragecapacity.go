// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// CSIStorageCapacity publishes the free capacity for volumes of a class in a part of the cluster.
var CSIStorageCapacity = generic.Kind[*storagev1.CSIStorageCapacity]{
	Name: "CSIStorageCapacity", Plural: "csistoragecapacities",
	Metadata: generic.Metadata{ValidateAsNew: true},
	New:      func() *storagev1.CSIStorageCapacity { return &storagev1.CSIStorageCapacity{} },
	NewList:  func() runtime.Object { return &storagev1.CSIStorageCapacityList{} },
	Validate: func(_ context.Context, c *check.Checker, capacity *storagev1.CSIStorageCapacity) {
		validateCapacity(c, capacity, metav1validation.LabelSelectorValidationOptions{})
	},
	ValidateUpdate:         validateCapacityUpdate,
	Warnings:               capacityWarnings,
	RequireResourceVersion: true,
	Table:                  generic.Table[*storagev1.CSIStorageCapacity]{Default: true},
}

var nodeTopologyPath, classNamePath = field.NewPath("nodeTopology"), field.NewPath("storageClassName")

func capacityWarnings(_ context.Context, c, _ *storagev1.CSIStorageCapacity) []string {
	if c.NodeTopology == nil {
		return nil
	}
	var out []string
	for i, expression := range c.NodeTopology.MatchExpressions {
		if warning := podspec.NodeLabelWarning(expression.Key); warning != "" {
			out = append(out, fmt.Sprintf("%s: %s is %s", nodeTopologyPath.Child("matchExpressions").Index(i).Child("key"), expression.Key, warning))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if warning := podspec.NodeLabelWarning(key); warning != "" {
			out = append(out, fmt.Sprintf("%s: %s", nodeTopologyPath.Child("matchLabels").Child(key), warning))
		}
	}
	return out
}

func validateCapacity(c *check.Checker, capacity *storagev1.CSIStorageCapacity, selectors metav1validation.LabelSelectorValidationOptions) {
	c.Add(metav1validation.ValidateLabelSelector(capacity.NodeTopology, selectors, nodeTopologyPath)...)
	c.DNSSubdomain(classNamePath, capacity.StorageClassName)
	if capacity.Capacity != nil && capacity.Capacity.Sign() < 0 {
		c.Add(field.Invalid(field.NewPath("capacity"), capacity.Capacity.String(), apivalidation.IsNegativeErrorMsg).WithOrigin("minimum"))
	}
}

// validateCapacityUpdate allows the capacity to change, but not the topology and class it is for.
func validateCapacityUpdate(_ context.Context, c *check.Checker, capacity, old *storagev1.CSIStorageCapacity) {
	var selectors metav1validation.LabelSelectorValidationOptions
	selectors.AllowInvalidLabelValueInSelector = len(metav1validation.ValidateLabelSelector(old.NodeTopology, selectors, nil)) > 0
	validateCapacity(c, capacity, selectors)
	if !equality.Semantic.DeepEqual(capacity.NodeTopology, old.NodeTopology) {
		c.Invalid(nodeTopologyPath, capacity.NodeTopology, apivalidation.FieldImmutableErrorMsg)
	}
	if capacity.StorageClassName != old.StorageClassName {
		c.Invalid(classNamePath, capacity.StorageClassName, apivalidation.FieldImmutableErrorMsg)
	}
}
