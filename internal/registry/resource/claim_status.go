// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/nodeselector"
)

// deviceID identifies a device, or a share of one.
type deviceID struct{ Driver, Pool, Device, ShareID string }

func allocatedID(r *resourcev1.DeviceRequestAllocationResult) deviceID {
	return deviceID{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}
}

func reportedID(d *resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

func allocatedDevices(a *resourcev1.AllocationResult) sets.Set[deviceID] {
	devices := sets.New[deviceID]()
	if a == nil {
		return devices
	}
	for i := range a.Devices.Results {
		devices.Insert(allocatedID(&a.Devices.Results[i]))
	}
	return devices
}

// statusUpdate is a write to a claim's status.
type statusUpdate struct {
	admins  admins
	writers writers
}

func (u statusUpdate) validate(ctx context.Context, c *check.Checker, claim, old *resourcev1.ResourceClaim) {
	u.admins.mayAllocate(ctx, c, claim.Status.Allocation, old.Status.Allocation, claim.Namespace)
	u.writers.mayBind(ctx, c, &claim.Status, &old.Status)
	u.writers.mayReport(ctx, c, &claim.Status, &old.Status)
	validateStatus(c, claim, old)
}

func validateStatus(c *check.Checker, claim, old *resourcev1.ResourceClaim) {
	status := &claim.Status
	set(c, status.ReservedFor, declared(resourcev1.ResourceClaimReservedForMaxSize),
		func(r resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID },
		statusPath.Child("reservedFor"), validateConsumer)
	allocated := allocatedDevices(status.Allocation)
	set(c, status.Devices, declared(unlimited),
		func(d resourcev1.AllocatedDeviceStatus) deviceID { return reportedID(&d) },
		statusPath.Child("devices"),
		func(c *check.Checker, d resourcev1.AllocatedDeviceStatus, path *field.Path) {
			validateDeviceStatus(c, &d, allocated, path)
		})
	validateReservations(c, claim, old)
	validateAllocation(c, claim, old)
}

func validateConsumer(c *check.Checker, r resourcev1.ResourceClaimConsumerReference, path *field.Path) {
	c.AllNonEmpty(path, "resource", r.Resource, "name", r.Name, "uid", string(r.UID))
}

// validateReservations allows reservations only of an allocated claim that is not being deleted.
func validateReservations(c *check.Checker, claim, old *resourcev1.ResourceClaim) {
	path := statusPath.Child("reservedFor")
	if len(claim.Status.ReservedFor) == 0 {
		return
	}
	if claim.Status.Allocation == nil {
		c.Forbidden(path, "may not be specified when `allocated` is not set")
		return
	}
	isNew := func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}
	if claim.DeletionTimestamp != nil && slices.ContainsFunc(claim.Status.ReservedFor, isNew) {
		c.Forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
	}
}

// validateAllocation allows an allocation to be set and removed, but not changed.
func validateAllocation(c *check.Checker, claim, old *resourcev1.ResourceClaim) {
	path, allocation := statusPath.Child("allocation"), claim.Status.Allocation
	if allocation == nil {
		return
	}
	if old.Status.Allocation != nil {
		c.Declared().Add(apivalidation.ValidateImmutableField(allocation, old.Status.Allocation, path).WithOrigin("update")...)
		return
	}
	validateAllocated(c, &allocation.Devices, requestsOf(&claim.Spec.Devices), path.Child("devices"))
	if allocation.NodeSelector != nil {
		nodeselector.Validate(c, allocation.NodeSelector, path.Child("nodeSelector"))
	}
}

func validateAllocated(c *check.Checker, a *resourcev1.DeviceAllocationResult, known requests, path *field.Path) {
	list(c, a.Results, declared(resourcev1.AllocationResultsMaxSize), path.Child("results"),
		func(c *check.Checker, r resourcev1.DeviceRequestAllocationResult, path *field.Path) {
			validateResult(c, &r, known, path)
		})
	// The list has the configuration of the classes and that of the claim.
	const most = 2 * resourcev1.DeviceConfigMaxSize
	list(c, a.Config, declared(most), path.Child("config"),
		func(c *check.Checker, configuration resourcev1.DeviceAllocationConfiguration, path *field.Path) {
			validateSource(c, configuration.Source, path.Child("source"))
			known.validateAll(c, configuration.Requests, path.Child("requests"))
			validateConfiguration(c, &configuration.DeviceConfiguration, false, path)
		})
}

func validateResult(c *check.Checker, r *resourcev1.DeviceRequestAllocationResult, known requests, path *field.Path) {
	known.validate(c, r.Request, path.Child("request"))
	c.Declared().DriverName(path.Child("driver"), r.Driver)
	validatePool(c.Declared(), r.Pool, path.Child("pool"))
	c.DNSLabel(path.Child("device"), r.Device)
	validateBinding(c, r.BindingConditions, r.BindingFailureConditions, path)
	validateTolerations(c, r.Tolerations, path.Child("tolerations"))
	if r.ShareID != nil {
		hasUUID(c, string(*r.ShareID), path.Child("shareID"))
	}
}

var sources = []resourcev1.AllocationConfigSource{resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass}

func validateSource(c *check.Checker, source resourcev1.AllocationConfigSource, path *field.Path) {
	check.RequiredOneOf(c.Declared(), path, source, sources...)
}

// validateDeviceStatus checks a device's status as its driver reports it (KEP-4817).
func validateDeviceStatus(c *check.Checker, d *resourcev1.AllocatedDeviceStatus, allocated sets.Set[deviceID], path *field.Path) {
	c.DriverName(path.Child("driver"), d.Driver)
	validatePool(c, d.Pool, path.Child("pool"))
	c.DNSLabel(path.Child("device"), d.Device)
	if d.ShareID != nil {
		hasUUID(c, *d.ShareID, path.Child("shareID"))
	}
	if id := reportedID(d); !allocated.Has(id) {
		c.Invalid(path, id, "must be an allocated device in the claim")
	}
	validateConditions(c, d.Conditions, resourcev1.AllocatedDeviceStatusMaxConditions, path.Child("conditions"))
	if d.Data != nil && len(d.Data.Raw) > 0 {
		validateJSON(c, *d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))
	}
	validateNetworkData(c, d.NetworkData, path.Child("networkData"))
}

func validateNetworkData(c *check.Checker, d *resourcev1.NetworkDeviceData, path *field.Path) {
	if d == nil {
		return
	}
	hasFormat(c, maxBytes(resourcev1.NetworkDeviceDataInterfaceNameMaxLength), d.InterfaceName, path.Child("interfaceName"))
	hasFormat(c, maxBytes(resourcev1.NetworkDeviceDataHardwareAddressMaxLength), d.HardwareAddress, path.Child("hardwareAddress"))
	set(c, d.IPs, declared(resourcev1.NetworkDeviceDataMaxIPs), itself, path.Child("ips"),
		func(c *check.Checker, ip string, path *field.Path) {
			c.Add(utilvalidation.IsValidInterfaceAddress(path, ip)...)
		})
}
