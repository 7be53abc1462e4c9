// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
)

// InvalidExpression reports why a CEL expression cannot run; a nil error is none.
func InvalidExpression(path *field.Path, expression string, err *cel.Error) field.ErrorList {
	if err == nil {
		return nil
	}
	switch err.Type {
	case cel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case cel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, expression, err.Detail)}
	}
	return field.ErrorList{field.InternalError(path, err)}
}
