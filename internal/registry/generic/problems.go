// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
)

// Invalid reports a value once for each of its problems, as the library's checks
// of names return them.
func Invalid(path *field.Path, value any, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}

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
