// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// longestName is the maximum length of the name of an attribute or capacity, with its domain, in
// the path of an error.
const longestName = resourcev1.DeviceMaxDomainLength + len("/") + resourcev1.DeviceMaxIDLength

// format is a check of k8s.io/apimachinery that k8s.io/api declares for a field.
type format[T any] func(ctx context.Context, op operation.Operation, path *field.Path, value, old *T) field.ErrorList

// hasFormat applies a format that is also declared: the strategy reports the error once.
func hasFormat[T any](c *check.Checker, format format[T], value T, path *field.Path) {
	c.Declared().Add(format(context.Background(), operation.Operation{}, path, &value, nil)...)
}

func hasFullName(c *check.Checker, name resourcev1.FullyQualifiedName, path *field.Path) {
	hasFormat(c, validate.ResourceFullyQualifiedName, name, path)
}

func hasUUID(c *check.Checker, uid string, path *field.Path) {
	hasFormat(c, validate.UUID, uid, path)
}

func maxBytes(most int) format[string] {
	return func(ctx context.Context, op operation.Operation, path *field.Path, value, old *string) field.ErrorList {
		return validate.MaxBytes(ctx, op, path, value, old, most)
	}
}

// needsFormat is hasFormat for a field that must be set.
func needsFormat(c *check.Checker, format format[string], value string, path *field.Path) {
	if value == "" {
		c.Declared().Required(path, "")
		return
	}
	hasFormat(c, format, value, path)
}

// validatePool checks the name of a pool: DNS subdomains with slashes in between.
func validatePool(c *check.Checker, name string, path *field.Path) {
	const format = "format=k8s-resource-pool-name"
	if name == "" {
		c.Required(path, "")
		return
	}
	if len(name) > resourcev1.PoolNameMaxLength {
		c.Add(field.TooLong(path, "", resourcev1.PoolNameMaxLength).WithOrigin(format))
	}
	for part := range strings.SplitSeq(name, "/") {
		for _, problem := range utilvalidation.IsDNS1123Subdomain(part) {
			c.Add(field.Invalid(path, part, problem).WithOrigin(format))
		}
	}
}

// validateQualifiedName checks the name of an attribute or capacity: an identifier with an optional
// domain; the driver's domain is the default. Like upstream, it accepts names of more than two
// parts.
func validateQualifiedName(c *check.Checker, name resourcev1.QualifiedName, path *field.Path) {
	parts := strings.Split(string(name), "/")
	switch len(parts) {
	case 1:
		validateIdentifier(c, parts[0], path)
	case 2:
		validateDomain(c, parts[0], path)
		validateNameInDomain(c, parts[1], path)
	}
}

func validateDomain(c *check.Checker, domain string, path *field.Path) {
	if domain == "" {
		c.Invalid(path, "", "the domain must not be empty")
		return
	}
	c.DriverName(path, domain)
}

func validateNameInDomain(c *check.Checker, name string, path *field.Path) {
	if name == "" {
		c.Invalid(path, "", "the name must not be empty")
		return
	}
	validateIdentifier(c, name, path)
}

func validateIdentifier(c *check.Checker, name string, path *field.Path) {
	c.MaxBytes(path, name, resourcev1.DeviceMaxIDLength)
	c.Invalid(path, name, content.IsCIdentifier(name)...)
}
