// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checktest runs the validation of kinds in tests.
package checktest

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Errors returns the errors of a new object.
func Errors[T any](ctx context.Context, validate func(context.Context, *check.Checker, T), obj T) field.ErrorList {
	return check.Run(func(c *check.Checker) { validate(ctx, c, obj) })
}

// UpdateErrors returns the errors of a changed object.
func UpdateErrors[T any](ctx context.Context, validate func(ctx context.Context, c *check.Checker, obj, old T), obj, old T) field.ErrorList {
	return check.Run(func(c *check.Checker) { validate(ctx, c, obj, old) })
}
