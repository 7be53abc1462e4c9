// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"maps"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// VolumeAttributesClass holds attributes that can be applied to a volume (KEP-3751).
var VolumeAttributesClass = generic.Kind[*storagev1.VolumeAttributesClass]{
	Name: "VolumeAttributesClass", Plural: "volumeattributesclasses", ShortNames: []string{"vac"}, ClusterScoped: true,
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *storagev1.VolumeAttributesClass { return &storagev1.VolumeAttributesClass{} },
	NewList:        func() runtime.Object { return &storagev1.VolumeAttributesClassList{} },
	Validate:       validateVolumeAttributesClass,
	ValidateUpdate: validateVolumeAttributesClassUpdate,
	Deletion:       generic.Deletion[*storagev1.VolumeAttributesClass]{ReturnObject: true},
	Columns: []generic.Column[*storagev1.VolumeAttributesClass]{{
		Name: "DriverName", Description: storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"],
		Cell: func(c *storagev1.VolumeAttributesClass) any { return c.DriverName },
	}},
}

func validateVolumeAttributesClass(_ context.Context, c *check.Checker, class *storagev1.VolumeAttributesClass) {
	path := field.NewPath("parameters")
	validateProvisioner(c, class.DriverName, field.NewPath("driverName"))
	validateParameters(c, class.Parameters, path)
	if len(class.Parameters) == 0 {
		c.Required(path, "must contain at least one key/value pair")
	}
}

func validateVolumeAttributesClassUpdate(ctx context.Context, c *check.Checker, class, old *storagev1.VolumeAttributesClass) {
	if class.DriverName != old.DriverName {
		c.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden.")
	}
	if !maps.Equal(class.Parameters, old.Parameters) {
		c.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden.")
	}
	validateVolumeAttributesClass(ctx, c, class)
}
