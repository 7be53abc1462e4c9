// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// DeviceClass names devices of a kind, for claims to ask for.
var DeviceClass = generic.Kind[*resourcev1.DeviceClass]{
	Name: "DeviceClass", Plural: "deviceclasses", ClusterScoped: true,
	New:      func() *resourcev1.DeviceClass { return &resourcev1.DeviceClass{} },
	NewList:  func() runtime.Object { return &resourcev1.DeviceClassList{} },
	Metadata: generic.Metadata{ValidName: anyName, ValidateAsNew: true},
	Spec:     func(c *resourcev1.DeviceClass) any { return &c.Spec },
	Validate: func(_ context.Context, c *resourcev1.DeviceClass) field.ErrorList {
		return validateClass(c, false, false)
	},
	ValidateUpdate: func(_ context.Context, c, old *resourcev1.DeviceClass) field.ErrorList {
		return validateClass(c, equality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors), equality.Semantic.DeepEqual(c.Spec.Config, old.Spec.Config))
	},
	Deletion: generic.Deletion[*resourcev1.DeviceClass]{ReturnObject: true},
}

func validateClass(c *resourcev1.DeviceClass, storedSelectors, storedConfig bool) field.ErrorList {
	var errs field.ErrorList
	if c.Name != "" {
		errs = hasFormat(validate.LongName, c.Name, field.NewPath("metadata", "name"))
	}
	errs = append(errs, validateSelectors(c.Spec.Selectors, storedSelectors, specPath.Child("selectors"))...)
	errs = append(errs, list(c.Spec.Config, declared(resourcev1.DeviceConfigMaxSize), specPath.Child("config"),
		func(config resourcev1.DeviceClassConfiguration, path *field.Path) field.ErrorList {
			return validateConfiguration(&config.DeviceConfiguration, storedConfig, path)
		})...)
	if name := c.Spec.ExtendedResourceName; name != nil {
		errs = append(errs, hasFormat(validate.ExtendedResourceName, *name, specPath.Child("extendedResourceName"))...)
	}
	return errs
}
