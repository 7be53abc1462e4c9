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
)

// This file is about what a device is like (attributes) and how much there is of
// what it has (capacities).

// semver is what semver.org, version 2.0.0, calls a version.
var semver = regexp.MustCompile(`^` +
	`(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-` + preRelease + `(\.` + preRelease + `)*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

const preRelease = `(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)`

func validateAttribute(a resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	const wanted = "exactly one value must be specified"
	var errs field.ErrorList
	values := 0
	for _, set := range []bool{a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if set {
			values++
		}
	}
	if a.StringValue != nil {
		errs = append(errs, validateAttributeLength(*a.StringValue, path.Child("string"))...)
	}
	if version := a.VersionValue; version != nil {
		at := path.Child("version")
		if !semver.MatchString(*version) {
			errs = append(errs, field.Invalid(at, *version, "must be a string compatible with semver.org spec 2.0.0"))
		}
		errs = append(errs, validateAttributeLength(*version, at)...)
	}
	if values != 1 {
		errs = append(errs, field.Invalid(path, a, wanted).WithOrigin("union").MarkCoveredByDeclarative())
	}
	return errs
}

func validateAttributeLength(value string, path *field.Path) field.ErrorList {
	if len(value) <= resourcev1.DeviceAttributeMaxValueLength {
		return nil
	}
	return field.ErrorList{field.TooLong(path, "", resourcev1.DeviceAttributeMaxValueLength)}
}

// validateWholeCapacity is of devices that are allocated once: nobody asks for a
// part of them.
func validateWholeCapacity(c resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	if c.RequestPolicy == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("requestPolicy"), "allowMultipleAllocations must be true")}
}

// validateSharedCapacity checks how much of a capacity may be asked for (KEP-5075):
// one of some values, or a value in a range.
func validateSharedCapacity(c resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	policy, path := c.RequestPolicy, path.Child("requestPolicy")
	switch {
	case policy == nil:
		return nil
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(policy.ValidValues) > 0 && policy.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validValues is defined")}
	case len(policy.ValidValues) > 0:
		return validateValues(policy.ValidValues, *policy.Default, c.Value, path.Child("validValues"))
	case policy.ValidRange != nil && policy.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validRange is defined")}
	case policy.ValidRange != nil:
		return amounts{*policy.Default, c.Value, policy.ValidRange}.validate(path.Child("validRange"))
	}
	return nil
}

// mostValues is how many values a policy may name.
const mostValues = 10

// validateValues wants values in order, each once, the default among them.
func validateValues(values []apiresource.Quantity, standard, capacity apiresource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	hasDefault := false
	errs = append(errs, set(values, own(mostValues),
		func(q apiresource.Quantity) string { return strconv.FormatInt(q.Value(), 10) }, path,
		func(q apiresource.Quantity, path *field.Path) field.ErrorList {
			hasDefault = hasDefault || q.Cmp(standard) == 0
			if q.Cmp(capacity) <= 0 {
				return nil
			}
			return field.ErrorList{field.Invalid(path, q.String(), fmt.Sprintf("option is larger than capacity value: %s", capacity.String()))}
		})...)
	if !hasDefault {
		errs = append(errs, field.Invalid(path, standard.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// amounts are those of a range from which a part of a capacity is asked.
type amounts struct {
	standard, capacity apiresource.Quantity
	*resourcev1.CapacityRequestPolicyRange
}

func (a amounts) validate(path *field.Path) field.ErrorList {
	if a.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	errs := a.validateOrder(path)
	if a.Step == nil {
		return errs
	}
	return append(errs, a.validateStep(path)...)
}

// validateOrder: min <= default <= max <= capacity.
func (a amounts) validateOrder(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	atMost := func(name string, value, other apiresource.Quantity, than string) {
		if value.Cmp(other) > 0 {
			errs = append(errs, field.Invalid(path.Child(name), value.String(), fmt.Sprintf("%s: %s", than, other.String())))
		}
	}
	atMost("min", *a.Min, a.capacity, "min is larger than capacity value")
	if a.standard.Cmp(*a.Min) < 0 {
		errs = append(errs, field.Invalid(path.Child("default"), a.standard.String(), fmt.Sprintf("default is less than min: %s", a.Min.String())))
	}
	if a.Max != nil {
		atMost("max", *a.Min, *a.Max, "min is larger than max")
		atMost("max", *a.Max, a.capacity, "max is larger than capacity value")
		atMost("default", a.standard, *a.Max, "default is more than max")
	}
	return errs
}

// each checks all amounts that are there.
func (a amounts) each(path *field.Path, check rule[*apiresource.Quantity]) field.ErrorList {
	var errs field.ErrorList
	for _, amount := range []struct {
		name  string
		value *apiresource.Quantity
	}{{"default", &a.standard}, {"min", a.Min}, {"max", a.Max}, {"step", a.Step}} {
		if amount.value != nil {
			errs = append(errs, check(amount.value, path.Child(amount.name))...)
		}
	}
	return errs
}

// validateWhole wants an amount that fits into 64 bits, for others cannot be
// divided.
func validateWhole(q *apiresource.Quantity, path *field.Path) field.ErrorList {
	switch {
	case q.Sign() < 0:
		return field.ErrorList{field.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg)}
	case q.CmpInt64(math.MaxInt64) > 0:
		return field.ErrorList{field.Invalid(path, q.String(), fmt.Sprintf("must not be larger than %d", math.MaxInt64))}
	}
	return nil
}

// validateStep: default and max must be steps above min, in whole numbers: what is
// less than one counts as one (DRAFractionalCapacityRange is off by default).
func (a amounts) validateStep(path *field.Path) field.ErrorList {
	at := path.Child("step")
	if a.Step.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, a.Step.String(), "must be greater than zero")}
	}
	var errs field.ErrorList
	first := a.Min.DeepCopy()
	first.Add(*a.Step)
	if first.Cmp(a.capacity) > 0 {
		errs = append(errs, field.Invalid(at, a.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), a.capacity.String())))
	}
	if tooLarge := a.each(path, validateWhole); len(tooLarge) > 0 {
		return append(errs, tooLarge...)
	}
	for _, q := range []*apiresource.Quantity{&a.standard, a.Max} {
		if q != nil && (q.Value()-a.Min.Value())%a.Step.Value() != 0 {
			errs = append(errs, field.Invalid(at, q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", a.Step.String(), a.Min.String())))
		}
	}
	return errs
}
