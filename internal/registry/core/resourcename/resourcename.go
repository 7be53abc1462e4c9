// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcename checks the names and amounts of resources, which containers, quotas, limit
// ranges, nodes and volumes share: "cpu", "requests.memory", "example.com/gpu".
package resourcename

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// IsNative reports whether Kubernetes defines the resource.
func IsNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// isExtended reports whether the resource is an extended resource, such as a device, whose name
// also fits into a quota.
func isExtended(name v1.ResourceName) bool {
	return !IsNative(name) && !strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// isInteger reports whether the resource has only whole amounts.
func isInteger(name v1.ResourceName) bool {
	switch name {
	case v1.ResourcePods, v1.ResourceQuotas, v1.ResourceServices, v1.ResourceReplicationControllers, v1.ResourceSecrets,
		v1.ResourceConfigMaps, v1.ResourcePersistentVolumeClaims, v1.ResourceServicesNodePorts, v1.ResourceServicesLoadBalancers:
		return true
	}
	return isExtended(name)
}

// quotaResources are the names without a domain that v1 defines, for containers or for quotas.
var quotaResources = sets.New(
	v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourceStorage,
	v1.ResourceRequestsCPU, v1.ResourceRequestsMemory, v1.ResourceRequestsEphemeralStorage, v1.ResourceRequestsStorage,
	v1.ResourceLimitsCPU, v1.ResourceLimitsMemory, v1.ResourceLimitsEphemeralStorage,
	v1.ResourcePods, v1.ResourceQuotas, v1.ResourceServices, v1.ResourceReplicationControllers, v1.ResourceSecrets,
	v1.ResourceConfigMaps, v1.ResourcePersistentVolumeClaims, v1.ResourceServicesNodePorts, v1.ResourceServicesLoadBalancers)

// IsQuota reports whether a quota can limit a resource whose name has no domain.
func IsQuota(name v1.ResourceName) bool {
	return name != v1.ResourceStorage && isStandard(name)
}

func isStandard(name v1.ResourceName) bool {
	return quotaResources.Has(name) || IsHugePages(name) || strings.HasPrefix(string(name), v1.ResourceRequestsHugePagesPrefix)
}

// Overcommits reports whether nodes may promise more of the resource than they have.
func Overcommits(name v1.ResourceName) bool { return IsNative(name) && !IsHugePages(name) }

func IsCPUOrMemory(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory
}

func IsHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// Validate checks the name of any resource, and reports whether it is valid.
func Validate(c *check.Checker, name v1.ResourceName, path *field.Path) bool {
	if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
		c.Invalid(path, name, problems...)
		return false
	}
	if !strings.Contains(string(name), "/") && !isStandard(name) {
		c.Invalid(path, name, "must be a standard resource type or fully qualified")
		return false
	}
	return true
}

// ValidateForContainer checks the name of a container's resource.
func ValidateForContainer(c *check.Checker, name v1.ResourceName, path *field.Path) {
	Validate(c, name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if !IsCPUOrMemory(name) && name != v1.ResourceEphemeralStorage && !IsHugePages(name) {
			c.Invalid(path, name, "must be a standard resource for containers")
		}
	case !IsNative(name) && !isExtended(name):
		c.Invalid(path, name, "doesn't follow extended resource name standard")
	}
}

// ValidateForQuota checks the name of a resource in a ResourceQuota.
func ValidateForQuota(c *check.Checker, name v1.ResourceName, path *field.Path) {
	Validate(c, name, path)
	if !strings.Contains(string(name), "/") && !IsQuota(name) {
		c.Invalid(path, name, "must be a standard resource for quota")
	}
}

// ValidateForLimitRange checks the name of a resource in a LimitRange, of containers and pods or of
// other objects.
func ValidateForLimitRange(c *check.Checker, name v1.ResourceName, ofContainers bool, path *field.Path) {
	if ofContainers {
		ValidateForContainer(c, name, path)
	} else {
		Validate(c, name, path)
	}
}

// ValidateQuantity checks an amount of the named resource.
func ValidateQuantity(c *check.Checker, name v1.ResourceName, quantity resource.Quantity, path *field.Path) {
	if quantity.Sign() < 0 {
		c.Invalid(path, quantity.String(), "must be greater than or equal to 0")
	}
	if isInteger(name) && quantity.MilliValue()%1000 != 0 {
		c.Invalid(path, quantity, "must be an integer")
	}
}

// ValidateAmount checks an amount of any resource.
func ValidateAmount(c *check.Checker, quantity resource.Quantity, path *field.Path) {
	if quantity.Value() < 0 {
		c.Invalid(path, quantity.Value(), "must be a valid resource quantity")
	}
}
