// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// groupRelease is what a group that does not fit gives back of its ResourceClaims (KEP-5729): an allocation
// that keeps the group from other nodes, or else a reservation.
type groupRelease struct{ deallocate, unreserve *resourcev1.ResourceClaim }

// releaseFor returns what a group that does not fit gives back: nothing if pods of the group are on nodes,
// whose claims are in use.
func (m *machine) releaseFor(group *model.Group, attempts []attempt) groupRelease {
	stuck := func(a attempt) bool { return a.on == nil && a.claim == nil }
	if !slices.ContainsFunc(attempts, stuck) || len(m.cluster.Placed(group)) > 0 {
		return groupRelease{}
	}
	for _, a := range attempts {
		if a.on == nil && a.shared != nil {
			return groupRelease{deallocate: a.shared}
		}
	}
	return groupRelease{unreserve: reservedClaim(m.cluster.Devices, group.Object)}
}

// reservedClaim returns a claim of a group that is allocated and reserved for it, or nil.
func reservedClaim(devices *model.Devices, group *schedulingv1beta1.PodGroup) *resourcev1.ResourceClaim {
	for i := range group.Spec.ResourceClaims {
		name, generated, err := resourceclaim.NameFromPodGroup(group, &group.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim := devices.Claim(types.NamespacedName{Namespace: group.Namespace, Name: *name})
		if claim == nil || claim.Status.Allocation == nil || generated && resourceclaim.IsForPodGroup(group, claim) != nil {
			continue
		}
		if isUser(claim, group.UID) && !devices.IsReleasing(claim.UID) {
			return claim
		}
	}
	return nil
}

// isUser reports whether a claim is reserved for a pod or PodGroup.
func isUser(claim *resourcev1.ResourceClaim, user types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == user })
}

// reasons returns what the group and its pods give back, for users.
func (r groupRelease) reasons(attempts []attempt) []string {
	var reasons []string
	if slices.ContainsFunc(attempts, func(a attempt) bool { return a.claim != nil }) {
		reasons = append(reasons, "deallocation and deletion of ResourceClaims completed")
	}
	switch {
	case r.deallocate != nil:
		reasons = append(reasons, "deallocation of PodGroup ResourceClaim completed")
	case r.unreserve != nil:
		reasons = append(reasons, "ResourceClaim unreserved for PodGroup")
	}
	return reasons
}
