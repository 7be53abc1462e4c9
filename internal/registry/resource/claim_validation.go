// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// validateClaim checks the devices that a claim, or a template of claims, requests.
func validateClaim(c *check.Checker, claim *resourcev1.DeviceClaim, path *field.Path) {
	known := requestsOf(claim)
	set(c, claim.Requests, declared(resourcev1.DeviceRequestsMaxSize),
		func(r resourcev1.DeviceRequest) string { return r.Name },
		path.Child("requests"), validateRequest)
	list(c, claim.Constraints, declared(resourcev1.DeviceConstraintsMaxSize), path.Child("constraints"),
		func(c *check.Checker, constraint resourcev1.DeviceConstraint, path *field.Path) {
			validateConstraint(c, &constraint, known, path)
		})
	list(c, claim.Config, declared(resourcev1.DeviceConfigMaxSize), path.Child("config"),
		func(c *check.Checker, configuration resourcev1.DeviceClaimConfiguration, path *field.Path) {
			known.validateAll(c, configuration.Requests, path.Child("requests"))
			validateConfiguration(c, &configuration.DeviceConfiguration, false, path)
		})
}

// requests maps the names of a claim's requests to those of their alternatives.
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

func (r requests) validateAll(c *check.Checker, names []string, path *field.Path) {
	set(c, names, declared(resourcev1.DeviceRequestsMaxSize), itself, path, r.validate)
}

// validate checks a reference to a request, "gpu", or to an alternative in one,
// "gpu/small".
func (r requests) validate(c *check.Checker, name string, path *field.Path) {
	const unknown = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		c.Invalid(path, name, unknown)
		return
	}
	for _, part := range parts {
		c.DNSLabel(path, part)
	}
	if !r.has(parts) {
		c.Invalid(path, name, unknown)
	}
}

func (r requests) has(parts []string) bool {
	alternatives, found := r[parts[0]]
	return found && (len(parts) == 1 || slices.Contains(alternatives, parts[1]))
}

func validateRequest(c *check.Checker, r resourcev1.DeviceRequest, path *field.Path) {
	const wanted = "exactly one of `exactly` or `firstAvailable` is required"
	c.DNSLabel(path.Child("name"), r.Name)
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		c.Required(path, wanted)
		return
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		c.Invalid(path, nil, wanted+", but multiple fields are set")
		return
	case r.Exactly != nil:
		validateExactly(c, r.Exactly, path.Child("exactly"))
		return
	}
	set(c, r.FirstAvailable, declared(resourcev1.FirstAvailableDeviceRequestMaxSize),
		func(a resourcev1.DeviceSubRequest) string { return a.Name },
		path.Child("firstAvailable"), validateAlternative)
}

func validateExactly(c *check.Checker, r *resourcev1.ExactDeviceRequest, path *field.Path) {
	c.RequiredDNSSubdomain(path.Child("deviceClassName"), r.DeviceClassName)
	validateSelectors(c, r.Selectors, false, path.Child("selectors"))
	validateAmount(c, r.AllocationMode, r.Count, path)
	validateTolerations(c, r.Tolerations, path.Child("tolerations"))
}

func validateAlternative(c *check.Checker, r resourcev1.DeviceSubRequest, path *field.Path) {
	c.DNSLabel(path.Child("name"), r.Name)
	needsFormat(c, validate.LongName, r.DeviceClassName, path.Child("deviceClassName"))
	validateSelectors(c, r.Selectors, false, path.Child("selectors"))
	validateAmount(c, r.AllocationMode, r.Count, path)
	validateTolerations(c, r.Tolerations, path.Child("tolerations"))
}

var allocationModes = []resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}

func validateAmount(c *check.Checker, mode resourcev1.DeviceAllocationMode, count int64, path *field.Path) {
	at := path.Child("count")
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if count != 0 {
			c.Invalid(at, count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if count <= 0 {
			c.Invalid(at, count, "must be greater than zero")
		}
	default:
		check.OneOf(c.Declared(), path.Child("allocationMode"), mode, allocationModes...)
	}
}

// validateConstraint requires an attribute that devices share or in which they differ. If both are
// set, it checks the first.
func validateConstraint(c *check.Checker, constraint *resourcev1.DeviceConstraint, known requests, path *field.Path) {
	known.validateAll(c, constraint.Requests, path.Child("requests"))
	switch {
	case constraint.MatchAttribute != nil:
		hasFullName(c, *constraint.MatchAttribute, path.Child("matchAttribute"))
		return
	case constraint.DistinctAttribute != nil:
		hasFullName(c, *constraint.DistinctAttribute, path.Child("distinctAttribute"))
		return
	}
	c.Required(path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
}
