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

	"github.com/kindred-project/kindred/internal/registry/core/podspec"
)

// deviceID says which device is meant, and which share of it.
type deviceID struct{ Driver, Pool, Device, ShareID string }

func given(r *resourcev1.DeviceRequestAllocationResult) deviceID {
	return deviceID{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}
}

func reported(d *resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

func allocatedDevices(a *resourcev1.AllocationResult) sets.Set[deviceID] {
	devices := sets.New[deviceID]()
	if a == nil {
		return devices
	}
	for i := range a.Devices.Results {
		devices.Insert(given(&a.Devices.Results[i]))
	}
	return devices
}

// statusUpdate is a write to a claim's status.
type statusUpdate struct {
	admins  admins
	writers writers
}

func (u statusUpdate) validate(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
	errs := u.admins.mayAllocate(ctx, c.Status.Allocation, old.Status.Allocation, c.Namespace)
	errs = append(errs, u.writers.mayBind(ctx, &c.Status, &old.Status)...)
	errs = append(errs, u.writers.mayReport(ctx, &c.Status, &old.Status)...)
	return append(errs, validateStatus(c, old)...)
}

func validateStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	status := &c.Status
	errs := set(status.ReservedFor, declared(resourcev1.ResourceClaimReservedForMaxSize),
		func(r resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID },
		statusPath.Child("reservedFor"), validateConsumer)
	allocated := allocatedDevices(status.Allocation)
	errs = append(errs, set(status.Devices, declared(unlimited),
		func(d resourcev1.AllocatedDeviceStatus) deviceID { return reported(&d) },
		statusPath.Child("devices"),
		func(d resourcev1.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
			return validateDeviceStatus(&d, allocated, path)
		})...)
	errs = append(errs, validateReservations(c, old)...)
	return append(errs, validateAllocation(c, old)...)
}

func validateConsumer(r resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct{ name, value string }{{"resource", r.Resource}, {"name", r.Name}, {"uid", string(r.UID)}} {
		if part.value == "" {
			errs = append(errs, field.Required(path.Child(part.name), ""))
		}
	}
	return errs
}

// validateReservations: only what was allocated can be reserved, and only as long as
// the claim is not being deleted.
func validateReservations(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path := statusPath.Child("reservedFor")
	if len(c.Status.ReservedFor) == 0 {
		return nil
	}
	if c.Status.Allocation == nil {
		return field.ErrorList{field.Forbidden(path, "may not be specified when `allocated` is not set")}
	}
	isNew := func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}
	if c.DeletionTimestamp != nil && slices.ContainsFunc(c.Status.ReservedFor, isNew) {
		return field.ErrorList{field.Forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")}
	}
	return nil
}

// validateAllocation: an allocation is made once. It can be taken back, but not
// changed.
func validateAllocation(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path, allocation := statusPath.Child("allocation"), c.Status.Allocation
	if allocation == nil {
		return nil
	}
	if old.Status.Allocation != nil {
		return apivalidation.ValidateImmutableField(allocation, old.Status.Allocation, path).WithOrigin("update").MarkCoveredByDeclarative()
	}
	errs := validateAllocated(&allocation.Devices, requestsOf(&c.Spec.Devices), path.Child("devices"))
	if allocation.NodeSelector != nil {
		errs = append(errs, podspec.ValidateNodeSelector(allocation.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

func validateAllocated(a *resourcev1.DeviceAllocationResult, known requests, path *field.Path) field.ErrorList {
	errs := list(a.Results, declared(resourcev1.AllocationResultsMaxSize), path.Child("results"),
		func(r resourcev1.DeviceRequestAllocationResult, path *field.Path) field.ErrorList {
			return validateResult(&r, known, path)
		})
	// The configuration of the classes is there, and that of the claim.
	const most = 2 * resourcev1.DeviceConfigMaxSize
	return append(errs, list(a.Config, declared(most), path.Child("config"),
		func(c resourcev1.DeviceAllocationConfiguration, path *field.Path) field.ErrorList {
			errs := validateSource(c.Source, path.Child("source"))
			errs = append(errs, known.validateAll(c.Requests, path.Child("requests"))...)
			return append(errs, validateConfiguration(&c.DeviceConfiguration, false, path)...)
		})...)
}

func validateResult(r *resourcev1.DeviceRequestAllocationResult, known requests, path *field.Path) field.ErrorList {
	errs := known.validate(r.Request, path.Child("request"))
	errs = append(errs, declaredDriver(r.Driver, path.Child("driver"))...)
	errs = append(errs, validatePool(r.Pool, path.Child("pool")).MarkCoveredByDeclarative()...)
	errs = append(errs, validateLabel(r.Device, path.Child("device"))...)
	errs = append(errs, validateBinding(r.BindingConditions, r.BindingFailureConditions, path)...)
	errs = append(errs, validateTolerations(r.Tolerations, path.Child("tolerations"))...)
	if r.ShareID != nil {
		errs = append(errs, hasUUID(string(*r.ShareID), path.Child("shareID"))...)
	}
	return errs
}

var sources = []resourcev1.AllocationConfigSource{resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass}

func validateSource(source resourcev1.AllocationConfigSource, path *field.Path) field.ErrorList {
	switch {
	case source == "":
		return field.ErrorList{field.Required(path, "").MarkCoveredByDeclarative()}
	case !slices.Contains(sources, source):
		return field.ErrorList{field.NotSupported(path, source, sources).MarkCoveredByDeclarative()}
	}
	return nil
}

// validateDeviceStatus checks what a driver says of a device (KEP-4817).
func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, allocated sets.Set[deviceID], path *field.Path) field.ErrorList {
	errs := validateDriver(d.Driver, path.Child("driver"))
	errs = append(errs, validatePool(d.Pool, path.Child("pool"))...)
	errs = append(errs, validateLabel(d.Device, path.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, hasUUID(*d.ShareID, path.Child("shareID"))...)
	}
	if id := reported(d); !allocated.Has(id) {
		errs = append(errs, field.Invalid(path, id, "must be an allocated device in the claim"))
	}
	errs = append(errs, validateConditions(d.Conditions, resourcev1.AllocatedDeviceStatusMaxConditions, path.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateJSON(*d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	return append(errs, validateNetworkData(d.NetworkData, path.Child("networkData"))...)
}

func validateNetworkData(d *resourcev1.NetworkDeviceData, path *field.Path) field.ErrorList {
	if d == nil {
		return nil
	}
	errs := append(
		hasFormat(maxBytes(resourcev1.NetworkDeviceDataInterfaceNameMaxLength), d.InterfaceName, path.Child("interfaceName")),
		hasFormat(maxBytes(resourcev1.NetworkDeviceDataHardwareAddressMaxLength), d.HardwareAddress, path.Child("hardwareAddress"))...)
	return append(errs, set(d.IPs, declared(resourcev1.NetworkDeviceDataMaxIPs), itself, path.Child("ips"),
		func(ip string, path *field.Path) field.ErrorList {
			return utilvalidation.IsValidInterfaceAddress(path, ip)
		})...)
}
