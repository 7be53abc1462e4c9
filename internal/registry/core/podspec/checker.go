// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func validateUserID(c *check.Checker, path *field.Path, id *int64) {
	if id != nil {
		c.Invalid(path, *id, validation.IsValidUserID(*id)...)
	}
}

func validateGroupID(c *check.Checker, path *field.Path, id *int64) {
	if id != nil {
		c.Invalid(path, *id, validation.IsValidGroupID(*id)...)
	}
}
