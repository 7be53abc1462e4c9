// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Resources are quantities as plain numbers: milli-CPUs, bytes, and whole units of other resources.
type Resources struct {
	MilliCPU         int64
	Memory           int64
	EphemeralStorage int64
	// Scalar has extended resources, huge pages and attachable volumes.
	Scalar map[v1.ResourceName]int64
}

// ResourcesOf returns the quantities of a resource list, without resources that scheduling ignores.
func ResourcesOf(list v1.ResourceList) Resources {
	var r Resources
	for name, quantity := range list {
		switch name {
		case v1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case v1.ResourceMemory:
			r.Memory = quantity.Value()
		case v1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value()
		default:
			if isScalar(name) {
				r.addScalar(name, quantity.Value())
			}
		}
	}
	return r
}

// isScalar reports whether a resource is counted in whole units: extended resources, whose names
// have a domain, huge pages and attachable volumes.
func isScalar(name v1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") ||
		strings.HasPrefix(s, v1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(s, v1.ResourceAttachableVolumesPrefix)
}

// IsExtendedResource reports whether a resource may be an extended resource that devices satisfy:
// it has a domain, which is not Kubernetes' own, or names a DeviceClass.
func IsExtendedResource(name v1.ResourceName) bool {
	s := string(name)
	return strings.HasPrefix(s, resourcev1.ResourceDeviceClassPrefix) ||
		strings.Contains(s, "/") && !strings.Contains(s, v1.ResourceDefaultNamespacePrefix) && !strings.HasPrefix(s, v1.DefaultResourceRequestsPrefix)
}

// IsZero reports whether all quantities are zero.
func (r *Resources) IsZero() bool {
	return r.MilliCPU == 0 && r.Memory == 0 && r.EphemeralStorage == 0 && len(r.Scalar) == 0
}

// Get returns the quantity of a resource.
func (r *Resources) Get(name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.MilliCPU
	case v1.ResourceMemory:
		return r.Memory
	case v1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	default:
		return r.Scalar[name]
	}
}

// add adds other times sign.
func (r *Resources) add(other *Resources, sign int64) {
	r.MilliCPU += sign * other.MilliCPU
	r.Memory += sign * other.Memory
	r.EphemeralStorage += sign * other.EphemeralStorage
	for name, amount := range other.Scalar {
		r.addScalar(name, sign*amount)
	}
}

func (r *Resources) addScalar(name v1.ResourceName, amount int64) {
	if r.Scalar == nil {
		r.Scalar = map[v1.ResourceName]int64{}
	}
	r.Scalar[name] += amount
}
