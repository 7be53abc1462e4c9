// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import resourcev1 "k8s.io/api/resource/v1"

// This file drops fields of features that are alpha in Kubernetes v1.37, as kube-apiserver does
// while they are disabled.

// dropAlphaClaim drops fields of DRADerivedAttributes.
func dropAlphaClaim(spec *resourcev1.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil {
			request.Exactly.DerivedAttributes = nil
		}
		for j := range request.FirstAvailable {
			request.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

// dropAlphaStatus drops fields of DRAOptionalNodeOperations.
func dropAlphaStatus(status *resourcev1.ResourceClaimStatus) {
	if status.Allocation == nil {
		return
	}
	for i := range status.Allocation.Devices.Results {
		status.Allocation.Devices.Results[i].SkipNodeOperations = nil
	}
}

// dropAlphaSlice drops fields of DRAPartitionableDevicesType and DRAOptionalNodeOperations, and
// those of devices.
func dropAlphaSlice(spec *resourcev1.ResourceSliceSpec) {
	spec.PartitionTypeAttribute = nil
	spec.SkipNodeOperations = nil
	for i := range spec.Devices {
		dropAlphaDevice(&spec.Devices[i])
	}
}

// dropAlphaDevice drops fields of DRANodeAllocatableResources, DRADeviceCompatibilityGroups and
// DRAListTypeAttributes.
func dropAlphaDevice(d *resourcev1.Device) {
	d.NodeAllocatableResources = nil
	for i := range d.ConsumesCounters {
		d.ConsumesCounters[i].CompatibilityGroups = nil
	}
	for name, attribute := range d.Attributes {
		attribute.IntValues, attribute.BoolValues, attribute.StringValues, attribute.VersionValues = nil, nil, nil, nil
		d.Attributes[name] = attribute
	}
}
