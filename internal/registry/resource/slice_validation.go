// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

// validateSlice checks a slice; old is nil for a new one.
func validateSlice(spec, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	errs := validateDriver(spec.Driver, specPath.Child("driver"))
	errs = append(errs, validateResourcePool(&spec.Pool, specPath.Child("pool"))...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Pool.Name, old.Pool.Name, specPath.Child("pool", "name"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Driver, old.Driver, specPath.Child("driver"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.NodeName, old.NodeName, specPath.Child("nodeName"))...)
	}
	errs = append(errs, validateSliceNodes(spec)...)
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(specPath, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, validateDevices(spec, old)...)
	return append(errs, set(spec.SharedCounters, declared(resourcev1.ResourceSliceMaxCounterSets),
		func(c resourcev1.CounterSet) string { return c.Name },
		specPath.Child("sharedCounters"),
		func(c resourcev1.CounterSet, path *field.Path) field.ErrorList {
			return append(needsFormat(validate.ShortName, c.Name, path.Child("name")),
				validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, path.Child("counters"))...)
		})...)
}

func validateResourcePool(p *resourcev1.ResourcePool, path *field.Path) field.ErrorList {
	errs := validatePool(p.Name, path.Child("name"))
	if p.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(path.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero"))
	}
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(path.Child("generation"), p.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

func validateCounters(counters map[string]resourcev1.Counter, most int, path *field.Path) field.ErrorList {
	switch {
	case len(counters) == 0:
		return field.ErrorList{field.Required(path, "").MarkCoveredByDeclarative()}
	case len(counters) > most:
		return field.ErrorList{field.TooMany(path, len(counters), most)}
	}
	var errs field.ErrorList
	for name := range counters {
		errs = append(errs, hasFormat(validate.ShortName, name, path)...)
	}
	return errs
}

// reach collects from where devices can be used. Exactly one way to say it may be
// chosen.
type reach struct {
	chosen []string
	errs   field.ErrorList
}

func (r *reach) choose(field string, errs field.ErrorList) {
	r.chosen = append(r.chosen, "`"+field+"`")
	r.errs = append(r.errs, errs...)
}

func (r *reach) node(name *string, empty string, path *field.Path) {
	switch {
	case name == nil:
	case *name == "":
		r.errs = append(r.errs, field.Invalid(path, *name, empty))
	default:
		r.choose("nodeName", validateNodeName(*name, path))
	}
}

// flag is a choice by being true.
func (r *reach) flag(name string, value *bool, path *field.Path) {
	switch {
	case value == nil:
	case !*value:
		r.errs = append(r.errs, field.Invalid(path, *value, "must be either unset or set to true"))
	default:
		r.choose(name, nil)
	}
}

// result adds what is wrong with the choice.
func (r *reach) result(path *field.Path, wanted, several string) field.ErrorList {
	switch len(r.chosen) {
	case 0:
		return append(r.errs, field.Required(path, wanted))
	case 1:
		return r.errs
	}
	return append(r.errs, field.Invalid(path, "{"+strings.Join(r.chosen, ", ")+"}", several))
}

func validateSliceNodes(spec *resourcev1.ResourceSliceSpec) field.ErrorList {
	const wanted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var r reach
	r.node(spec.NodeName, "must be either unset or set to a non-empty string", specPath.Child("nodeName"))
	if selector := spec.NodeSelector; selector != nil {
		path := specPath.Child("nodeSelector")
		r.choose("nodeSelector", podspec.ValidateNodeSelector(selector, path))
		// One term can be merged with those of other slices.
		if len(selector.NodeSelectorTerms) != 1 {
			r.errs = append(r.errs, field.Invalid(path.Child("nodeSelectorTerms"), selector.NodeSelectorTerms, "must have exactly one node selector term"))
		}
	}
	r.flag("allNodes", spec.AllNodes, specPath.Child("allNodes"))
	r.flag("perDeviceNodeSelection", spec.PerDeviceNodeSelection, specPath.Child("perDeviceNodeSelection"))
	return r.result(specPath, wanted, wanted+", but multiple fields are set")
}

func validateDeviceNodes(d *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	const wanted = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
		}
		return nil
	}
	var r reach
	r.node(d.NodeName, "must not be empty", path.Child("nodeName"))
	if d.NodeSelector != nil {
		r.choose("nodeSelector", podspec.ValidateNodeSelector(d.NodeSelector, path.Child("nodeSelector")))
	}
	r.flag("allNodes", d.AllNodes, path.Child("allNodes"))
	return r.result(path, wanted, wanted)
}

func validateDevices(spec, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	most := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(spec.Devices, isAdvanced) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	before := map[string]*resourcev1.Device{}
	if old != nil {
		for i := range old.Devices {
			before[old.Devices[i].Name] = &old.Devices[i]
		}
	}
	perDevice := ptr.Deref(spec.PerDeviceNodeSelection, false)
	return set(spec.Devices, own(most), func(d resourcev1.Device) string { return d.Name }, specPath.Child("devices"),
		func(d resourcev1.Device, path *field.Path) field.ErrorList {
			errs := validateDevice(&d, before[d.Name], path)
			errs = append(errs, validateDeviceNodes(&d, perDevice, path)...)
			return append(errs, validateBinding(d.BindingConditions, d.BindingFailureConditions, path)...)
		})
}

// isAdvanced devices take so much room that a slice holds fewer of them.
func isAdvanced(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }

// validateDevice checks a device; old is nil for a new one. Capacities and taints
// that stay as they were are not held to new rules.
func validateDevice(d, old *resourcev1.Device, path *field.Path) field.ErrorList {
	errs := validateLabel(d.Name, path.Child("name"))
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	if n := len(d.Attributes); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice)))
	}
	errs = append(errs, dictionary(d.Attributes, longestName, path.Child("attributes"), validateQualifiedName, validateAttribute)...)
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		check := validateWholeCapacity
		if ptr.Deref(d.AllowMultipleAllocations, false) {
			check = validateSharedCapacity
		}
		errs = append(errs, dictionary(d.Capacity, longestName, path.Child("capacity"), validateQualifiedName, check)...)
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, list(d.Taints, own(resourcev1.DeviceTaintsMaxLength), path.Child("taints"), validateTaint)...)
	}
	return append(errs, set(d.ConsumesCounters, declared(resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice),
		func(c resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		path.Child("consumesCounters"),
		func(c resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
			return append(needsFormat(validate.ShortName, c.CounterSet, path.Child("counterSet")),
				validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, path.Child("counters"))...)
		})...)
}

// validateBinding checks the conditions of which the scheduler waits for some, and
// gives up on others (KEP-5007). Who has one kind needs the other.
func validateBinding(success, failure []string, path *field.Path) field.ErrorList {
	succeeded, failed := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	errs := validateConditionTypes(success, declared(resourcev1.BindingConditionsMaxSize), succeeded)
	errs = append(errs, validateConditionTypes(failure, declared(resourcev1.BindingFailureConditionsMaxSize), failed)...)
	for i, name := range failure {
		if slices.Contains(success, name) {
			errs = append(errs, field.Invalid(failed.Index(i), name, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(success) == 0 && len(failure) > 0 {
		errs = append(errs, field.Invalid(succeeded, success, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failure) == 0 && len(success) > 0 {
		errs = append(errs, field.Invalid(failed, failure, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}

func validateConditionTypes(types []string, limit limit, path *field.Path) field.ErrorList {
	errs := list(types, limit, path, metav1validation.ValidateLabelName)
	seen := sets.New[string]()
	for i, name := range types {
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		seen.Insert(name)
	}
	return errs
}
