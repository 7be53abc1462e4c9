// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Devices has the objects of dynamic resource allocation (KEP-4381).
//
// An allocation that was decided is pending until it is written. Its devices count as allocated, but
// its claim can be used only by pods of the same PodGroup: the reservation of another pod might be
// written first. Each pod of the group writes the allocation, unless another one has.
type Devices struct {
	Classes Table[string, *resourcev1.DeviceClass]

	claims     Table[types.NamespacedName, *resourcev1.ResourceClaim]
	slices     Table[string, *resourcev1.ResourceSlice]
	taintRules Table[string, *resourcev1.DeviceTaintRule]
	// tainted has the slices with the taints of the rules, ordered by name; nil if it must be
	// computed.
	tainted []*resourcev1.ResourceSlice
	pending map[types.UID]*pendingAllocation
	// releasing counts the writes that remove the allocation of a claim, or a user.
	releasing map[types.UID]int
}

type pendingAllocation struct {
	allocation *resourcev1.AllocationResult
	// pods are those that write it. If there are several, they are in group.
	pods  sets.Set[types.UID]
	group types.NamespacedName
}

func newDevices() *Devices {
	return &Devices{
		Classes:    Table[string, *resourcev1.DeviceClass]{},
		claims:     Table[types.NamespacedName, *resourcev1.ResourceClaim]{},
		slices:     Table[string, *resourcev1.ResourceSlice]{},
		taintRules: Table[string, *resourcev1.DeviceTaintRule]{},
		pending:    map[types.UID]*pendingAllocation{},
		releasing:  map[types.UID]int{},
	}
}

// Claim returns a claim, or nil.
func (d *Devices) Claim(key types.NamespacedName) *resourcev1.ResourceClaim { return d.claims[key] }

// SetClaim adds or updates a claim, and returns its former state, or nil.
func (d *Devices) SetClaim(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	return d.claims.Set(Key(claim), claim)
}

// WroteClaim updates a claim with what the scheduler has written. See [Table.Written].
func (d *Devices) WroteClaim(claim *resourcev1.ResourceClaim) bool {
	return d.claims.Written(Key(claim), claim)
}

// RemoveClaim removes a claim.
func (d *Devices) RemoveClaim(key types.NamespacedName) { delete(d.claims, key) }

// Pending returns the allocation of a claim that is being written, or nil, and whether pods of a group
// share it.
func (d *Devices) Pending(claim types.UID, group types.NamespacedName) (allocation *resourcev1.AllocationResult, shared bool) {
	pending := d.pending[claim]
	if pending == nil {
		return nil, false
	}
	return pending.allocation, group.Name != "" && pending.group == group
}

// Release records that the allocation of a claim, or a user, is being removed. Until Released, no pod is
// placed with the claim: it might lose what it was placed for.
func (d *Devices) Release(claim types.UID) { d.releasing[claim]++ }

// Released ends what Release began.
func (d *Devices) Released(claim types.UID) {
	if d.releasing[claim]--; d.releasing[claim] <= 0 {
		delete(d.releasing, claim)
	}
}

// IsReleasing reports whether the allocation of a claim, or a user, is being removed.
func (d *Devices) IsReleasing(claim types.UID) bool { return d.releasing[claim] > 0 }

// SetSlice adds or updates a slice, and returns its former state, or nil.
func (d *Devices) SetSlice(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	d.tainted = nil
	return d.slices.Set(slice.Name, slice)
}

// RemoveSlice removes a slice.
func (d *Devices) RemoveSlice(name string) {
	d.tainted = nil
	delete(d.slices, name)
}

// SetTaintRule adds or updates a rule that taints devices.
func (d *Devices) SetTaintRule(rule *resourcev1.DeviceTaintRule) {
	d.tainted = nil
	d.taintRules.Set(rule.Name, rule)
}

// RemoveTaintRule removes a rule that taints devices.
func (d *Devices) RemoveTaintRule(name string) {
	d.tainted = nil
	delete(d.taintRules, name)
}

// Slices returns the slices with the taints of the rules, ordered by name.
func (d *Devices) Slices() []*resourcev1.ResourceSlice {
	if d.tainted != nil || len(d.slices) == 0 {
		return d.tainted
	}
	for _, slice := range d.slices {
		for _, rule := range d.taintRules {
			slice = taint(slice, rule)
		}
		d.tainted = append(d.tainted, slice)
	}
	slices.SortFunc(d.tainted, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	return d.tainted
}

// taint returns a slice with the taint of a rule on the devices that the rule selects. A rule without
// selector selects none.
func taint(slice *resourcev1.ResourceSlice, rule *resourcev1.DeviceTaintRule) *resourcev1.ResourceSlice {
	selector := rule.Spec.DeviceSelector
	if selector == nil || isOther(selector.Driver, slice.Spec.Driver) || isOther(selector.Pool, slice.Spec.Pool.Name) {
		return slice
	}
	var patched *resourcev1.ResourceSlice
	for i := range slice.Spec.Devices {
		if isOther(selector.Device, slice.Spec.Devices[i].Name) {
			continue
		}
		if patched == nil {
			patched = slice.DeepCopy()
		}
		patched.Spec.Devices[i].Taints = append(patched.Spec.Devices[i].Taints, rule.Spec.Taint)
	}
	if patched == nil {
		return slice
	}
	return patched
}

func isOther(want *string, got string) bool { return want != nil && *want != got }

// Allocated returns the devices that are allocated, or about to be.
func (d *Devices) Allocated() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	seen := map[types.UID]bool{}
	for _, claim := range d.claims {
		if claim.Status.Allocation != nil {
			seen[claim.UID] = true
			addAllocated(&state, claim.Status.Allocation)
		}
	}
	for uid, pending := range d.pending {
		if !seen[uid] {
			addAllocated(&state, pending.allocation)
		}
	}
	return state
}

// addAllocated adds the devices of an allocation. Admin access does not keep others from a device.
func addAllocated(state *structured.AllocatedState, allocation *resourcev1.AllocationResult) {
	for i := range allocation.Devices.Results {
		result := &allocation.Devices.Results[i]
		if result.AdminAccess != nil && *result.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		if result.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
		if result.ConsumedCapacity != nil {
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		}
	}
}

// DevicePlan is how the ResourceClaims of a pod get devices on the pod's node, and are reserved for
// the pod or its PodGroup.
type DevicePlan struct {
	Claims []ClaimPlan
	// Extended is the claim for the pod's extended resources, or nil.
	Extended *ExtendedPlan
}

// Planned returns the claims of a plan that was written.
func (p *DevicePlan) Planned() []*resourcev1.ResourceClaim {
	var claims []*resourcev1.ResourceClaim
	for _, planned := range p.Claims {
		claims = append(claims, planned.Claim)
	}
	if p.Extended != nil {
		claims = append(claims, p.Extended.Claim)
	}
	return claims
}

// IsEmpty reports whether there is nothing to do.
func (p *DevicePlan) IsEmpty() bool { return len(p.Claims) == 0 && p.Extended == nil }

// ClaimPlan is what must be written of a ResourceClaim.
type ClaimPlan struct {
	Claim *resourcev1.ResourceClaim
	// Allocation is the claim's new allocation; nil if it is allocated already.
	Allocation *resourcev1.AllocationResult
	// User is the pod or PodGroup for which the claim is reserved.
	User resourcev1.ResourceClaimConsumerReference
}

// assume makes the allocations of a plan count, for a pod that may be in a group.
func (d *Devices) assume(plan *DevicePlan, pod types.UID, group types.NamespacedName) {
	for _, claim := range plan.Claims {
		if claim.Allocation == nil {
			continue
		}
		pending := d.pending[claim.Claim.UID]
		if pending == nil {
			pending = &pendingAllocation{claim.Allocation, sets.New[types.UID](), group}
			d.pending[claim.Claim.UID] = pending
		}
		pending.pods.Insert(pod)
	}
	if plan.Extended != nil {
		d.pending[extendedKey(pod)] = &pendingAllocation{allocation: plan.Extended.Allocation}
	}
}

// extendedKey stands for the UID of a claim for extended resources, which is not created yet.
func extendedKey(pod types.UID) types.UID { return "extended resources of " + pod }

// release ends what assume began.
func (d *Devices) release(plan *DevicePlan, pod types.UID) {
	for _, claim := range plan.Claims {
		pending := d.pending[claim.Claim.UID]
		if pending == nil {
			continue
		}
		if pending.pods.Delete(pod); pending.pods.Len() == 0 {
			delete(d.pending, claim.Claim.UID)
		}
	}
	delete(d.pending, extendedKey(pod))
}
