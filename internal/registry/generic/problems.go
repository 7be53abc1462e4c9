// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import "k8s.io/apimachinery/pkg/util/validation/field"

// Invalid reports a value once for each of its problems, as the library's checks
// of names return them.
func Invalid(path *field.Path, value any, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}
