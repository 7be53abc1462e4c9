// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// This file holds the rules that StorageClasses and VolumeAttributesClasses share: those for the
// driver and its parameters.

func validateProvisioner(c *check.Checker, name string, path *field.Path) {
	if name == "" {
		c.Declared().Required(path, "")
		return
	}
	c.QualifiedName(path, strings.ToLower(name))
}

func validateParameters(c *check.Checker, parameters map[string]string, path *field.Path) {
	const most, mostBytes = 512, 256 * 1024
	if len(parameters) > most {
		c.TooLong(path, most)
		return
	}
	size := 0
	for key, value := range parameters {
		if key == "" {
			c.Invalid(path, key, "field can not be empty.")
		}
		size += len(key) + len(value)
	}
	if size > mostBytes {
		c.TooLong(path, mostBytes)
	}
}
