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
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// longestName is how much of the name of an attribute or a capacity, with its
// domain, is shown in a path.
const longestName = resourcev1.DeviceMaxDomainLength + len("/") + resourcev1.DeviceMaxIDLength

// format is a library's check that k8s.io/api declares for a field.
type format[T any] func(ctx context.Context, op operation.Operation, path *field.Path, value, old *T) field.ErrorList

// hasFormat applies a declared format by hand: the strategy reports it once.
func hasFormat[T any](format format[T], value T, path *field.Path) field.ErrorList {
	return format(context.Background(), operation.Operation{}, path, &value, nil).MarkCoveredByDeclarative()
}

func hasFullName(name resourcev1.FullyQualifiedName, path *field.Path) field.ErrorList {
	return hasFormat(validate.ResourceFullyQualifiedName, name, path)
}

func hasUUID(uid string, path *field.Path) field.ErrorList {
	return hasFormat(validate.UUID, uid, path)
}

func maxBytes(most int) format[string] {
	return func(ctx context.Context, op operation.Operation, path *field.Path, value, old *string) field.ErrorList {
		return validate.MaxBytes(ctx, op, path, value, old, most)
	}
}

// needsFormat is hasFormat for a field that must be set.
func needsFormat(format format[string], value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "").MarkCoveredByDeclarative()}
	}
	return hasFormat(format, value, path)
}

// validateDriver checks the name of a driver; that of a CSI driver may be the same.
func validateDriver(name string, path *field.Path) field.ErrorList {
	return podspec.ValidateCSIDriverName(name, path)
}

// declaredDriver is validateDriver for fields where it is declared too.
func declaredDriver(name string, path *field.Path) field.ErrorList {
	errs := validateDriver(name, path)
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeTooLong:
			_ = err.WithOrigin("maxLength")
		case field.ErrorTypeInvalid:
			_ = err.WithOrigin("format=k8s-long-name-caseless")
		}
	}
	return errs.MarkCoveredByDeclarative()
}

// validatePool checks the name of a pool: that of a node, or several such parts.
func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, generic.Invalid(path, part, utilvalidation.IsDNS1123Subdomain(part))...)
	}
	return errs.WithOrigin("format=k8s-resource-pool-name")
}

// validateLabel checks the name of a device or of a request.
func validateLabel(name string, path *field.Path) field.ErrorList {
	return generic.Invalid(path, name, utilvalidation.IsDNS1123Label(name))
}

// validateQualifiedName checks the name of an attribute or a capacity: an
// identifier, after a domain or in that of the driver. Names of more than two
// parts were never refused.
func validateQualifiedName(name resourcev1.QualifiedName, path *field.Path) field.ErrorList {
	parts := strings.Split(string(name), "/")
	switch len(parts) {
	case 1:
		return validateIdentifier(parts[0], path)
	case 2:
		return append(validateDomain(parts[0], path), validateNameInDomain(parts[1], path)...)
	}
	return nil
}

func validateDomain(domain string, path *field.Path) field.ErrorList {
	if domain == "" {
		return field.ErrorList{field.Invalid(path, "", "the domain must not be empty")}
	}
	return validateDriver(domain, path)
}

func validateNameInDomain(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Invalid(path, "", "the name must not be empty")}
	}
	return validateIdentifier(name, path)
}

func validateIdentifier(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(name) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, generic.Invalid(path, name, content.IsCIdentifier(name))...)
}

func validateNodeName(name string, path *field.Path) field.ErrorList {
	return generic.Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}
