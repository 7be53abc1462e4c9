// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/nodeselector"
)

// validateSlice checks a slice; old is nil for a new one.
func validateSlice(c *check.Checker, spec, old *resourcev1.ResourceSliceSpec) {
	c.DriverName(specPath.Child("driver"), spec.Driver)
	validateResourcePool(c, &spec.Pool, specPath.Child("pool"))
	if old != nil {
		c.Immutable(specPath.Child("pool", "name"), spec.Pool.Name, old.Pool.Name)
		c.Immutable(specPath.Child("driver"), spec.Driver, old.Driver)
		c.Immutable(specPath.Child("nodeName"), spec.NodeName, old.NodeName)
	}
	validateSliceNodes(c, spec)
	if spec.SharedCounters != nil && spec.Devices != nil {
		c.Invalid(specPath, "", "only one of `sharedCounters` or `devices` is allowed")
	}
	validateDevices(c, spec, old)
	set(c, spec.SharedCounters, declared(resourcev1.ResourceSliceMaxCounterSets),
		func(c resourcev1.CounterSet) string { return c.Name },
		specPath.Child("sharedCounters"),
		func(c *check.Checker, set resourcev1.CounterSet, path *field.Path) {
			needsFormat(c, validate.ShortName, set.Name, path.Child("name"))
			validateCounters(c, set.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, path.Child("counters"))
		})
}

func validateResourcePool(c *check.Checker, p *resourcev1.ResourcePool, path *field.Path) {
	validatePool(c, p.Name, path.Child("name"))
	if p.ResourceSliceCount <= 0 {
		c.Invalid(path.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero")
	}
	if p.Generation < 0 {
		c.Invalid(path.Child("generation"), p.Generation, "must be greater than or equal to zero")
	}
}

func validateCounters(c *check.Checker, counters map[string]resourcev1.Counter, most int, path *field.Path) {
	switch {
	case len(counters) == 0:
		c.Declared().Required(path, "")
		return
	case len(counters) > most:
		c.TooMany(path, len(counters), most)
		return
	}
	for name := range counters {
		hasFormat(c, validate.ShortName, name, path)
	}
}

// nodeChoice checks the fields that select the nodes of devices. Exactly one of them must be set.
type nodeChoice struct {
	*check.Checker
	chosen []string
}

func (n *nodeChoice) choose(field string) {
	n.chosen = append(n.chosen, "`"+field+"`")
}

func (n *nodeChoice) node(name *string, empty string, path *field.Path) {
	switch {
	case name == nil:
	case *name == "":
		n.Invalid(path, *name, empty)
	default:
		n.choose("nodeName")
		n.DNSSubdomain(path, *name)
	}
}

func (n *nodeChoice) selector(selector *corev1.NodeSelector, path *field.Path) {
	if selector != nil {
		n.choose("nodeSelector")
		nodeselector.Validate(n.Checker, selector, path)
	}
}

// flag checks a field that must be true if it is set.
func (n *nodeChoice) flag(name string, value *bool, path *field.Path) {
	switch {
	case value == nil:
	case !*value:
		n.Invalid(path, *value, "must be either unset or set to true")
	default:
		n.choose(name)
	}
}

// exactlyOne reports none or several fields that are set.
func (n *nodeChoice) exactlyOne(path *field.Path, none, several string) {
	switch len(n.chosen) {
	case 0:
		n.Required(path, none)
	case 1:
	default:
		n.Invalid(path, "{"+strings.Join(n.chosen, ", ")+"}", several)
	}
}

func validateSliceNodes(c *check.Checker, spec *resourcev1.ResourceSliceSpec) {
	const wanted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	n := nodeChoice{Checker: c}
	n.node(spec.NodeName, "must be either unset or set to a non-empty string", specPath.Child("nodeName"))
	n.selector(spec.NodeSelector, specPath.Child("nodeSelector"))
	// A single term can be merged with those of other slices.
	if selector := spec.NodeSelector; selector != nil && len(selector.NodeSelectorTerms) != 1 {
		c.Invalid(specPath.Child("nodeSelector", "nodeSelectorTerms"), selector.NodeSelectorTerms, "must have exactly one node selector term")
	}
	n.flag("allNodes", spec.AllNodes, specPath.Child("allNodes"))
	n.flag("perDeviceNodeSelection", spec.PerDeviceNodeSelection, specPath.Child("perDeviceNodeSelection"))
	n.exactlyOne(specPath, wanted, wanted+", but multiple fields are set")
}

func validateDeviceNodes(c *check.Checker, d *resourcev1.Device, perDevice bool, path *field.Path) {
	const wanted = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	if !perDevice {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			c.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
		}
		return
	}
	n := nodeChoice{Checker: c}
	n.node(d.NodeName, "must not be empty", path.Child("nodeName"))
	n.selector(d.NodeSelector, path.Child("nodeSelector"))
	n.flag("allNodes", d.AllNodes, path.Child("allNodes"))
	n.exactlyOne(path, wanted, wanted)
}

func validateDevices(c *check.Checker, spec, old *resourcev1.ResourceSliceSpec) {
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
	set(c, spec.Devices, own(most), func(d resourcev1.Device) string { return d.Name }, specPath.Child("devices"),
		func(c *check.Checker, d resourcev1.Device, path *field.Path) {
			validateDevice(c, &d, before[d.Name], path)
			validateDeviceNodes(c, &d, perDevice, path)
			validateBinding(c, d.BindingConditions, d.BindingFailureConditions, path)
		})
}

// isAdvanced reports whether the device has features that need much space, so that a slice may have
// fewer devices.
func isAdvanced(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }

// validateDevice checks a device; old is nil for a new one. Unchanged capacities and taints are not
// validated again.
func validateDevice(c *check.Checker, d, old *resourcev1.Device, path *field.Path) {
	c.DNSLabel(path.Child("name"), d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		c.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice))
	}
	if n := len(d.Attributes); n > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		c.Invalid(path, n, fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice))
	}
	dictionary(c, d.Attributes, longestName, path.Child("attributes"), validateQualifiedName, validateAttribute)
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		if ptr.Deref(d.AllowMultipleAllocations, false) {
			dictionary(c, d.Capacity, longestName, path.Child("capacity"), validateQualifiedName, validateSharedCapacity)
		} else {
			dictionary(c, d.Capacity, longestName, path.Child("capacity"), validateQualifiedName, validateWholeCapacity)
		}
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		list(c, d.Taints, own(resourcev1.DeviceTaintsMaxLength), path.Child("taints"), validateTaint)
	}
	set(c, d.ConsumesCounters, declared(resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice),
		func(c resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		path.Child("consumesCounters"),
		func(c *check.Checker, consumption resourcev1.DeviceCounterConsumption, path *field.Path) {
			needsFormat(c, validate.ShortName, consumption.CounterSet, path.Child("counterSet"))
			validateCounters(c, consumption.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, path.Child("counters"))
		})
}

// validateBinding checks the types of the conditions that the scheduler waits for before it binds a
// pod, and of those that make it give up (KEP-5007). A device needs both or neither.
func validateBinding(c *check.Checker, success, failure []string, path *field.Path) {
	succeeded, failed := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	validateConditionTypes(c, success, declared(resourcev1.BindingConditionsMaxSize), succeeded)
	validateConditionTypes(c, failure, declared(resourcev1.BindingFailureConditionsMaxSize), failed)
	for i, name := range failure {
		if slices.Contains(success, name) {
			c.Invalid(failed.Index(i), name, "bindingFailureConditions must not overlap with bindingConditions")
		}
	}
	if len(success) == 0 && len(failure) > 0 {
		c.Invalid(succeeded, success, "bindingConditions are required to use bindingFailureConditions")
	}
	if len(failure) == 0 && len(success) > 0 {
		c.Invalid(failed, failure, "bindingFailureConditions are required to use bindingConditions")
	}
}

func validateConditionTypes(c *check.Checker, types []string, limit limit, path *field.Path) {
	list(c, types, limit, path, func(c *check.Checker, name string, path *field.Path) { c.LabelName(path, name) })
	seen := sets.Set[string]{}
	for i, name := range types {
		check.Unique(c, path.Index(i), seen, name)
	}
}
