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

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// DeviceClass selects and configures devices that claims can request by its name.
var DeviceClass = generic.Kind[*resourcev1.DeviceClass]{
	Name: "DeviceClass", Plural: "deviceclasses", ClusterScoped: true,
	New:      func() *resourcev1.DeviceClass { return &resourcev1.DeviceClass{} },
	NewList:  func() runtime.Object { return &resourcev1.DeviceClassList{} },
	Metadata: generic.Metadata{ValidName: anyName, ValidateAsNew: true},
	Spec:     func(c *resourcev1.DeviceClass) any { return &c.Spec },
	Validate: func(_ context.Context, c *check.Checker, class *resourcev1.DeviceClass) {
		validateClass(c, class, false, false)
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, class, old *resourcev1.DeviceClass) {
		validateClass(c, class, equality.Semantic.DeepEqual(class.Spec.Selectors, old.Spec.Selectors), equality.Semantic.DeepEqual(class.Spec.Config, old.Spec.Config))
	},
	Deletion: generic.Deletion[*resourcev1.DeviceClass]{ReturnObject: true},
}

func validateClass(c *check.Checker, class *resourcev1.DeviceClass, storedSelectors, storedConfig bool) {
	if class.Name != "" {
		hasFormat(c, validate.LongName, class.Name, field.NewPath("metadata", "name"))
	}
	validateSelectors(c, class.Spec.Selectors, storedSelectors, specPath.Child("selectors"))
	list(c, class.Spec.Config, declared(resourcev1.DeviceConfigMaxSize), specPath.Child("config"),
		func(c *check.Checker, config resourcev1.DeviceClassConfiguration, path *field.Path) {
			validateConfiguration(c, &config.DeviceConfiguration, storedConfig, path)
		})
	if name := class.Spec.ExtendedResourceName; name != nil {
		hasFormat(c, validate.ExtendedResourceName, *name, specPath.Child("extendedResourceName"))
	}
}
