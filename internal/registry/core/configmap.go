// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ConfigMap holds configuration for pods. The data of an immutable ConfigMap cannot change
// (KEP-1412).
var ConfigMap = generic.Kind[*corev1.ConfigMap]{
	Name: "ConfigMap", Plural: "configmaps", ShortNames: []string{"cm"},
	Metadata:       generic.Metadata{ValidateAsNew: true},
	New:            func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
	NewList:        func() runtime.Object { return &corev1.ConfigMapList{} },
	Validate:       validateConfigMap,
	ValidateUpdate: validateConfigMapUpdate,
	Columns: []generic.Column[*corev1.ConfigMap]{{
		Name: "Data", Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
		Cell: func(c *corev1.ConfigMap) any { return len(c.Data) + len(c.BinaryData) },
	}},
}

func validateConfigMap(_ context.Context, c *check.Checker, configMap *corev1.ConfigMap) {
	size := 0
	for key, value := range configMap.Data {
		validateDataKey(c, field.NewPath("data").Key(key), key)
		if _, twice := configMap.BinaryData[key]; twice {
			c.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData")
		}
		size += len(value)
	}
	for key, value := range configMap.BinaryData {
		validateDataKey(c, field.NewPath("binaryData").Key(key), key)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		c.TooLong(field.NewPath(""), corev1.MaxSecretSize)
	}
}

// validateDataKey checks a key of a ConfigMap or Secret, which must be a valid file name.
func validateDataKey(c *check.Checker, path *field.Path, key string) {
	c.Invalid(path, key, validation.IsConfigMapKey(key)...)
}

func validateConfigMapUpdate(ctx context.Context, c *check.Checker, configMap, old *corev1.ConfigMap) {
	if old.Immutable != nil && *old.Immutable {
		stillImmutable(c, configMap.Immutable)
		unchanged(c, field.NewPath("data"), configMap.Data, old.Data)
		unchanged(c, field.NewPath("binaryData"), configMap.BinaryData, old.BinaryData)
	}
	validateConfigMap(ctx, c, configMap)
}

func stillImmutable(c *check.Checker, immutable *bool) {
	if immutable != nil && *immutable {
		return
	}
	c.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set")
}

func unchanged(c *check.Checker, path *field.Path, value, old any) {
	if !equality.Semantic.DeepEqual(value, old) {
		c.Forbidden(path, "field is immutable when `immutable` is set")
	}
}
