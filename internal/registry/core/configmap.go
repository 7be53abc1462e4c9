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

func validateConfigMap(_ context.Context, c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range c.Data {
		errs = append(errs, validateDataKey(field.NewPath("data").Key(key), key)...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, validateDataKey(field.NewPath("binaryData").Key(key), key)...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "" /*unused*/, corev1.MaxSecretSize))
	}
	return errs
}

// validateDataKey checks a key of a ConfigMap or Secret, which must be a valid file name.
func validateDataKey(path *field.Path, key string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(path, key, message))
	}
	return errs
}

func validateConfigMapUpdate(ctx context.Context, c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if old.Immutable != nil && *old.Immutable {
		errs = append(errs, stillImmutable(c.Immutable)...)
		errs = append(errs, unchanged(field.NewPath("data"), c.Data, old.Data)...)
		errs = append(errs, unchanged(field.NewPath("binaryData"), c.BinaryData, old.BinaryData)...)
	}
	return append(errs, validateConfigMap(ctx, c)...)
}

func stillImmutable(immutable *bool) field.ErrorList {
	if immutable != nil && *immutable {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set")}
}

func unchanged(path *field.Path, value, old any) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "field is immutable when `immutable` is set")}
}
