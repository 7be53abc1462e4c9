// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// checker walks a pod; each of its methods is the rules of one field.
type checker struct {
	check.Checker
}

func (c *checker) positive(path *field.Path, value int64) {
	if value <= 0 {
		c.Add(field.Invalid(path, value, "must be greater than zero").WithOrigin("minimum"))
	}
}

func (c *checker) userID(path *field.Path, id *int64) {
	if id != nil {
		c.Invalid(path, *id, validation.IsValidUserID(*id)...)
	}
}

func (c *checker) groupID(path *field.Path, id *int64) {
	if id != nil {
		c.Invalid(path, *id, validation.IsValidGroupID(*id)...)
	}
}
