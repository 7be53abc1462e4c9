// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects what is wrong with an object.
type checker struct {
	errs field.ErrorList
}

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

func (c *checker) invalid(path *field.Path, value any, detail string) {
	c.add(field.Invalid(path, value, detail))
}

func (c *checker) required(path *field.Path, detail string) {
	c.add(field.Required(path, detail))
}

func (c *checker) immutable(path *field.Path, value, old any) {
	c.add(validation.ValidateImmutableField(value, old, path)...)
}

// nonNegative takes a number that may be missing.
func nonNegative[N int32 | int64](c *checker, path *field.Path, n *N) {
	if n != nil {
		c.add(validation.ValidateNonnegativeField(int64(*n), path)...)
	}
}

// unlike tells whether one of two values that may be missing differs from the other.
func unlike[V comparable](a, b *V) bool {
	if a == nil || b == nil {
		return a != b
	}
	return *a != *b
}
