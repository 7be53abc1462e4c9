// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// This file holds the rules for attributes and capacities of devices.

// semver matches versions of Semantic Versioning 2.0.0 (semver.org).
var semver = regexp.MustCompile(`^` +
	`(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-` + preRelease + `(\.` + preRelease + `)*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

const preRelease = `(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)`

func validateAttribute(c *check.Checker, a resourcev1.DeviceAttribute, path *field.Path) {
	const wanted = "exactly one value must be specified"
	values := 0
	for _, set := range []bool{a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if set {
			values++
		}
	}
	if a.StringValue != nil {
		validateAttributeLength(c, *a.StringValue, path.Child("string"))
	}
	if version := a.VersionValue; version != nil {
		at := path.Child("version")
		if !semver.MatchString(*version) {
			c.Invalid(at, *version, "must be a string compatible with semver.org spec 2.0.0")
		}
		validateAttributeLength(c, *version, at)
	}
	if values != 1 {
		c.Declared().Add(field.Invalid(path, a, wanted).WithOrigin("union"))
	}
}

func validateAttributeLength(c *check.Checker, value string, path *field.Path) {
	if len(value) > resourcev1.DeviceAttributeMaxValueLength {
		c.TooLong(path, resourcev1.DeviceAttributeMaxValueLength)
	}
}

// validateWholeCapacity checks a capacity of a device that is allocated once: no claim
// can request a part of it.
func validateWholeCapacity(c *check.Checker, capacity resourcev1.DeviceCapacity, path *field.Path) {
	if capacity.RequestPolicy != nil {
		c.Forbidden(path.Child("requestPolicy"), "allowMultipleAllocations must be true")
	}
}

// validateSharedCapacity checks the policy for requests of a part of a capacity (KEP-5075): listed
// values, or a range.
func validateSharedCapacity(c *check.Checker, capacity resourcev1.DeviceCapacity, path *field.Path) {
	policy, path := capacity.RequestPolicy, path.Child("requestPolicy")
	switch {
	case policy == nil:
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		c.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)
	case len(policy.ValidValues) > 0 && policy.Default == nil:
		c.Required(path.Child("default"), "required when validValues is defined")
	case len(policy.ValidValues) > 0:
		validateValues(c, policy.ValidValues, *policy.Default, capacity.Value, path.Child("validValues"))
	case policy.ValidRange != nil && policy.Default == nil:
		c.Required(path.Child("default"), "required when validRange is defined")
	case policy.ValidRange != nil:
		amounts{*policy.Default, capacity.Value, policy.ValidRange}.validate(c, path.Child("validRange"))
	}
}

// mostValues is the maximum number of values in a policy.
const mostValues = 10

// validateValues requires ordered, unique values that include the default.
func validateValues(c *check.Checker, values []apiresource.Quantity, standard, capacity apiresource.Quantity, path *field.Path) {
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			c.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order")
		}
	}
	hasDefault := false
	set(c, values, own(mostValues),
		func(q apiresource.Quantity) string { return strconv.FormatInt(q.Value(), 10) }, path,
		func(c *check.Checker, q apiresource.Quantity, path *field.Path) {
			hasDefault = hasDefault || q.Cmp(standard) == 0
			if q.Cmp(capacity) > 0 {
				c.Invalid(path, q.String(), fmt.Sprintf("option is larger than capacity value: %s", capacity.String()))
			}
		})
	if !hasDefault {
		c.Invalid(path, standard.String(), "default value is not valid according to the requestPolicy")
	}
}

// amounts are the bounds within which a claim may request a part of a capacity.
type amounts struct {
	standard, capacity apiresource.Quantity
	*resourcev1.CapacityRequestPolicyRange
}

func (a amounts) validate(c *check.Checker, path *field.Path) {
	if a.Min == nil {
		c.Required(path.Child("min"), "required when validRange is defined")
		return
	}
	a.validateOrder(c, path)
	if a.Step != nil {
		a.validateStep(c, path)
	}
}

// validateOrder requires min <= default <= max <= capacity.
func (a amounts) validateOrder(c *check.Checker, path *field.Path) {
	atMost := func(name string, value, other apiresource.Quantity, than string) {
		if value.Cmp(other) > 0 {
			c.Invalid(path.Child(name), value.String(), fmt.Sprintf("%s: %s", than, other.String()))
		}
	}
	atMost("min", *a.Min, a.capacity, "min is larger than capacity value")
	if a.standard.Cmp(*a.Min) < 0 {
		c.Invalid(path.Child("default"), a.standard.String(), fmt.Sprintf("default is less than min: %s", a.Min.String()))
	}
	if a.Max != nil {
		atMost("max", *a.Min, *a.Max, "min is larger than max")
		atMost("max", *a.Max, a.capacity, "max is larger than capacity value")
		atMost("default", a.standard, *a.Max, "default is more than max")
	}
}

// each checks all amounts that are set.
func (a amounts) each(c *check.Checker, path *field.Path, validate rule[*apiresource.Quantity]) {
	for _, amount := range []struct {
		name  string
		value *apiresource.Quantity
	}{{"default", &a.standard}, {"min", a.Min}, {"max", a.Max}, {"step", a.Step}} {
		if amount.value != nil {
			validate(c, amount.value, path.Child(amount.name))
		}
	}
}

// validateWhole requires an amount that fits into 64 bits, so that it can be divided.
func validateWhole(c *check.Checker, q *apiresource.Quantity, path *field.Path) {
	switch {
	case q.Sign() < 0:
		c.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg)
	case q.CmpInt64(math.MaxInt64) > 0:
		c.Invalid(path, q.String(), fmt.Sprintf("must not be larger than %d", math.MaxInt64))
	}
}

// validateStep requires that default and max are whole steps above min. Fractions are rounded up
// (DRAFractionalCapacityRange is disabled by default).
func (a amounts) validateStep(c *check.Checker, path *field.Path) {
	at := path.Child("step")
	if a.Step.Sign() <= 0 {
		c.Invalid(at, a.Step.String(), "must be greater than zero")
		return
	}
	first := a.Min.DeepCopy()
	first.Add(*a.Step)
	if first.Cmp(a.capacity) > 0 {
		c.Invalid(at, a.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), a.capacity.String()))
	}
	if !c.Passes(func() { a.each(c, path, validateWhole) }) {
		return
	}
	for _, q := range []*apiresource.Quantity{&a.standard, a.Max} {
		if q != nil && (q.Value()-a.Min.Value())%a.Step.Value() != 0 {
			c.Invalid(at, q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", a.Step.String(), a.Min.String()))
		}
	}
}
