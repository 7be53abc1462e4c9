// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// validateClaim checks what a claim, or the template of one, asks for.
func validateClaim(claim *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	known := requestsOf(claim)
	errs := set(claim.Requests, declared(resourcev1.DeviceRequestsMaxSize),
		func(r resourcev1.DeviceRequest) string { return r.Name },
		path.Child("requests"), validateRequest)
	errs = append(errs, list(claim.Constraints, declared(resourcev1.DeviceConstraintsMaxSize), path.Child("constraints"),
		func(c resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
			return validateConstraint(&c, known, path)
		})...)
	return append(errs, list(claim.Config, declared(resourcev1.DeviceConfigMaxSize), path.Child("config"),
		func(c resourcev1.DeviceClaimConfiguration, path *field.Path) field.ErrorList {
			return append(known.validateAll(c.Requests, path.Child("requests")), validateConfiguration(&c.DeviceConfiguration, false, path)...)
		})...)
}

// requests are the names of a claim's requests, and those of the alternatives in
// each.
type requests map[string][]string

func requestsOf(claim *resourcev1.DeviceClaim) requests {
	known := requests{}
	for _, request := range claim.Requests {
		var alternatives []string
		for _, alternative := range request.FirstAvailable {
			alternatives = append(alternatives, alternative.Name)
		}
		known[request.Name] = alternatives
	}
	return known
}

func (r requests) validateAll(names []string, path *field.Path) field.ErrorList {
	return set(names, declared(resourcev1.DeviceRequestsMaxSize), itself, path, r.validate)
}

// validate checks a reference to a request, "gpu", or to an alternative in one,
// "gpu/small".
func (r requests) validate(name string, path *field.Path) field.ErrorList {
	unknown := field.ErrorList{field.Invalid(path, name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")}
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		return unknown
	}
	var errs field.ErrorList
	for _, part := range parts {
		errs = append(errs, validateLabel(part, path)...)
	}
	if !r.has(parts) {
		errs = append(errs, unknown...)
	}
	return errs
}

func (r requests) has(parts []string) bool {
	alternatives, found := r[parts[0]]
	return found && (len(parts) == 1 || slices.Contains(alternatives, parts[1]))
}

func validateRequest(r resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	const wanted = "exactly one of `exactly` or `firstAvailable` is required"
	errs := validateLabel(r.Name, path.Child("name"))
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(path, wanted))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(path, nil, wanted+", but multiple fields are set"))
	case r.Exactly != nil:
		return append(errs, validateExactly(r.Exactly, path.Child("exactly"))...)
	}
	return append(errs, set(r.FirstAvailable, declared(resourcev1.FirstAvailableDeviceRequestMaxSize),
		func(a resourcev1.DeviceSubRequest) string { return a.Name },
		path.Child("firstAvailable"), validateAlternative)...)
}

func validateExactly(r *resourcev1.ExactDeviceRequest, path *field.Path) field.ErrorList {
	errs := validateClassName(r.DeviceClassName, path.Child("deviceClassName"))
	errs = append(errs, validateSelectors(r.Selectors, false, path.Child("selectors"))...)
	errs = append(errs, validateAmount(r.AllocationMode, r.Count, path)...)
	return append(errs, validateTolerations(r.Tolerations, path.Child("tolerations"))...)
}

func validateAlternative(r resourcev1.DeviceSubRequest, path *field.Path) field.ErrorList {
	errs := validateLabel(r.Name, path.Child("name"))
	errs = append(errs, needsFormat(validate.LongName, r.DeviceClassName, path.Child("deviceClassName"))...)
	errs = append(errs, validateSelectors(r.Selectors, false, path.Child("selectors"))...)
	errs = append(errs, validateAmount(r.AllocationMode, r.Count, path)...)
	return append(errs, validateTolerations(r.Tolerations, path.Child("tolerations"))...)
}

func validateClassName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return generic.Invalid(path, name, utilvalidation.IsDNS1123Subdomain(name))
}

var allocationModes = []resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}

func validateAmount(mode resourcev1.DeviceAllocationMode, count int64, path *field.Path) field.ErrorList {
	at := path.Child("count")
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if count != 0 {
			return field.ErrorList{field.Invalid(at, count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode))}
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if count <= 0 {
			return field.ErrorList{field.Invalid(at, count, "must be greater than zero")}
		}
	default:
		return field.ErrorList{field.NotSupported(path.Child("allocationMode"), mode, allocationModes).MarkCoveredByDeclarative()}
	}
	return nil
}

// validateConstraint wants an attribute that the devices share, or one in which
// they differ; the first is looked at if there are both.
func validateConstraint(c *resourcev1.DeviceConstraint, known requests, path *field.Path) field.ErrorList {
	errs := known.validateAll(c.Requests, path.Child("requests"))
	switch {
	case c.MatchAttribute != nil:
		return append(errs, hasFullName(*c.MatchAttribute, path.Child("matchAttribute"))...)
	case c.DistinctAttribute != nil:
		return append(errs, hasFullName(*c.DistinctAttribute, path.Child("distinctAttribute"))...)
	}
	return append(errs, field.Required(path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
}
