// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// allocateTimeout limits the search for devices on one node, which is exponential in the worst case
// (upstream: DynamicResourcesArgs.filterTimeout).
const allocateTimeout = 10 * time.Second

// features are those of upstream that are on by default.
var features = structured.Features{
	AdminAccess:             true,
	PrioritizedList:         true,
	PartitionableDevices:    true,
	DeviceTaints:            true,
	DeviceBindingAndStatus:  true,
	ConsumableCapacity:      true,
	FractionalCapacityRange: true,
}

func newAllocator(devices *model.Devices, selectors *cel.Cache) (structured.Allocator, error) {
	return structured.NewAllocator(context.Background(), features, devices.Allocated(), classes(devices.Classes), devices.Slices(), selectors)
}

// classes is the lister of DeviceClasses that the allocator wants.
type classes model.Table[string, *resourcev1.DeviceClass]

func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	var all []*resourcev1.DeviceClass
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("deviceclass.resource.k8s.io %q not found", name)
}

// deviceCheck checks the nodes for a pod with ResourceClaims.
type deviceCheck struct {
	clock clock.PassiveClock
	pod   *model.Pod
	// group is the PodGroup of the pod, or nil.
	group *schedulingv1beta1.PodGroup
	// claims are all claims of the pod: those that are allocated, and the others.
	claims    []use
	allocated []availability
	// pending are the allocations that are written for other pods of the group.
	pending     map[types.UID]*resourcev1.AllocationResult
	unallocated []*resourcev1.ResourceClaim
	extended    *extendedResources
	allocator   structured.Allocator
	// nodes has the result for each node that was checked. It does not depend on the node's pods.
	nodes map[string]*nodeAllocation
	// unavailable are allocated claims that are not available on a node.
	unavailable []*resourcev1.ResourceClaim
}

// availability is an allocated claim, with the nodes on which it is available; nil means all.
type availability struct {
	claim *resourcev1.ResourceClaim
	nodes *nodeaffinity.NodeSelector
}

type nodeAllocation struct {
	results   []resourcev1.AllocationResult
	rejection *Rejection
	// extended is the claim for extended resources, with the last of the results, or nil.
	extended *model.ExtendedPlan
}

var unavailable = rejectUnresolvable("resourceclaim not available on the node")

func (c *deviceCheck) Check(node *model.Node) *Rejection { return c.on(node).rejection }

func (c *deviceCheck) on(node *model.Node) *nodeAllocation {
	result := c.nodes[node.Name]
	if result == nil {
		result = c.allocate(node)
		c.nodes[node.Name] = result
	}
	return result
}

// allocate allocates the unallocated claims on a node, if the others are available there.
func (c *deviceCheck) allocate(node *model.Node) *nodeAllocation {
	missing := false
	for _, a := range c.allocated {
		if a.nodes != nil && !a.nodes.Match(node.Node) || c.isLost(a.claim) {
			missing = true
			if a.claim.Status.Allocation != nil {
				c.unavailable = append(c.unavailable, a.claim)
			}
		}
	}
	if missing {
		return &nodeAllocation{rejection: unavailable}
	}
	allocation, claims := &nodeAllocation{}, c.unallocated
	if c.extended != nil {
		if c.extended.left != nil {
			return &nodeAllocation{rejection: rejectUnresolvable("cannot schedule extended resource claim")}
		}
		if claim, mappings := c.extended.claim(node); claim != nil {
			allocation.extended = &model.ExtendedPlan{Claim: claim, Mappings: mappings}
			claims = append(slices.Clip(claims), claim)
		}
	}
	if len(claims) == 0 {
		return allocation
	}
	ctx, cancel := context.WithTimeout(context.Background(), allocateTimeout)
	defer cancel()
	results, err := c.allocator.Allocate(ctx, node.Node, claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &nodeAllocation{rejection: failure(fmt.Errorf("node %s: timed out trying to allocate devices", node.Name))}
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return &nodeAllocation{rejection: rejectUnresolvable(err.Error())}
	case err != nil:
		return &nodeAllocation{rejection: failure(err)}
	case len(results) != len(claims):
		return &nodeAllocation{rejection: rejectUnresolvable("cannot allocate all claims")}
	}
	allocation.results = results
	if allocation.extended != nil {
		allocation.extended.Allocation = &results[len(results)-1]
	}
	return allocation
}

// isLost reports whether a device of an allocated claim has failed to become ready (KEP-5007).
func (c *deviceCheck) isLost(claim *resourcev1.ResourceClaim) bool {
	ready, err := isReady(claim)
	return err != nil || !ready && isLate(claim, c.clock.Now())
}

// Unavailable returns an allocated claim that is not available on a node which was checked, and that has no
// user other than the given one, which is the pod or its PodGroup. If there is no such claim, it returns the
// pod's claim for extended resources of an earlier attempt, or nil. The claim prevents the pod from being
// placed.
func (c *deviceCheck) Unavailable(user types.UID) *resourcev1.ResourceClaim {
	for _, claim := range c.unavailable {
		users := claim.Status.ReservedFor
		if len(users) == 0 || len(users) == 1 && users[0].UID == user {
			return claim
		}
	}
	if c.extended != nil && user == c.pod.UID {
		return c.extended.left
	}
	return nil
}

func (c *deviceCheck) Reserve(node *model.Node, reservation *model.Reservation) {
	on := c.on(node)
	results := on.results
	reservation.Devices.Extended = on.extended
	for _, claim := range c.claims {
		plan := model.ClaimPlan{Claim: claim.ResourceClaim, Allocation: c.pending[claim.UID], User: claim.user}
		if claim.Status.Allocation == nil && plan.Allocation == nil {
			plan.Allocation, results = &results[0], results[1:]
		}
		if !c.isReserved(claim) || !c.isReadyNow(claim.ResourceClaim) {
			reservation.Devices.Claims = append(reservation.Devices.Claims, plan)
		}
	}
}

// isReserved reports whether a claim is reserved for the pod or its group. The names in a reservation are
// not enough: another PodGroup of the same name may have existed.
func (c *deviceCheck) isReserved(claim use) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(user resourcev1.ResourceClaimConsumerReference) bool {
		return user.UID == claim.user.UID || user.UID == c.pod.UID || c.group != nil && user.UID == c.group.UID
	})
}

func (c *deviceCheck) isReadyNow(claim *resourcev1.ResourceClaim) bool {
	ready, err := isReady(claim)
	return ready && err == nil
}

// score counts how far in front the allocated alternatives are in their lists.
func (c *deviceCheck) score(node *model.Node) int64 {
	var score int64
	results := c.on(node).results
	for _, claim := range c.claims {
		allocation := cmp.Or(claim.Status.Allocation, c.pending[claim.UID])
		if allocation == nil && len(results) > 0 {
			allocation, results = &results[0], results[1:]
		}
		if allocation == nil {
			continue
		}
		chosen := map[string]bool{}
		for _, result := range allocation.Devices.Results {
			chosen[result.Request] = true
		}
		for _, request := range claim.Spec.Devices.Requests {
			for i, alternative := range request.FirstAvailable {
				if chosen[resourceclaim.CreateSubRequestRef(request.Name, alternative.Name)] {
					score += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
				}
			}
		}
	}
	return score
}
