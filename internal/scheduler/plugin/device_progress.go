// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// DeviceTimeout is how long a pod waits until its devices are ready (upstream:
// DynamicResourcesArgs.bindingTimeout).
const DeviceTimeout = 600 * time.Second

// DevicesReady reports whether the devices of a plan that was written are ready for the pod. An error
// means that they do not become ready.
func DevicesReady(cluster *model.Cluster, plan *model.DevicePlan, now time.Time) (bool, error) {
	if plan.Extended != nil && cluster.Devices.Claim(model.Key(plan.Extended.Claim)) == nil {
		// It was created, but not seen yet. Until then its devices must stay reserved.
		return false, nil
	}
	for _, planned := range plan.Planned() {
		key := model.Key(planned)
		claim := cluster.Devices.Claim(key)
		if claim == nil || claim.UID != planned.UID {
			return false, fmt.Errorf("could not find ResourceClaim %q", key)
		}
		ready, err := isReady(claim)
		switch {
		case err != nil:
			return false, err
		case ready:
		case isLate(claim, now):
			return false, fmt.Errorf("device binding timeout: claim=%s", claim.Name)
		default:
			return false, nil
		}
	}
	return true, nil
}

// HasBindingConditions reports whether a device of a plan that was written must become ready first.
func HasBindingConditions(cluster *model.Cluster, plan *model.DevicePlan) bool {
	for _, planned := range plan.Planned() {
		claim := cluster.Devices.Claim(model.Key(planned))
		if claim == nil || claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			if len(claim.Status.Allocation.Devices.Results[i].BindingConditions) > 0 {
				return true
			}
		}
	}
	return false
}

// isReady reports whether all conditions are true that a claim's devices require before a pod is
// bound (KEP-5007). An error means that a device reports a failure.
func isReady(claim *resourcev1.ResourceClaim) (bool, error) {
	if claim.Status.Allocation == nil {
		return false, nil
	}
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if len(result.BindingConditions) == 0 {
			continue
		}
		conditions := conditionsOf(claim, result)
		for _, name := range result.BindingFailureConditions {
			if failed := meta.FindStatusCondition(conditions, name); failed != nil && failed.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("device binding failed: claim=%s, reason=%s, message=%q", claim.Name, failed.Reason, failed.Message)
			}
		}
		for _, name := range result.BindingConditions {
			if !meta.IsStatusConditionTrue(conditions, name) {
				return false, nil
			}
		}
	}
	return true, nil
}

// conditionsOf returns the conditions that a driver has reported for an allocated device.
func conditionsOf(claim *resourcev1.ResourceClaim, result *resourcev1.DeviceRequestAllocationResult) []metav1.Condition {
	for i := range claim.Status.Devices {
		device := &claim.Status.Devices[i]
		if device.Driver == result.Driver && device.Pool == result.Pool && device.Device == result.Device {
			return device.Conditions
		}
	}
	return nil
}

// isLate reports whether a claim's devices had enough time to become ready.
func isLate(claim *resourcev1.ResourceClaim, now time.Time) bool {
	allocation := claim.Status.Allocation
	if allocation == nil || allocation.AllocationTimestamp == nil {
		return false
	}
	for i := range allocation.Devices.Results {
		if allocation.Devices.Results[i].BindingConditions != nil {
			return allocation.AllocationTimestamp.Add(DeviceTimeout).Before(now)
		}
	}
	return false
}
