// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// This file is what StorageClasses and VolumeAttributesClasses share: a driver,
// and parameters for it.

func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "").MarkCoveredByDeclarative()}
	}
	lower := strings.ToLower(name)
	return generic.Invalid(path, lower, utilvalidation.IsQualifiedName(lower))
}

func validateParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	const most, mostBytes = 512, 256 * 1024
	if len(parameters) > most {
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	var errs field.ErrorList
	size := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(path, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if size > mostBytes {
		errs = append(errs, field.TooLong(path, "", mostBytes))
	}
	return errs
}
