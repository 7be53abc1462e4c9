// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// devices keeps pods on nodes where their ResourceClaims are allocated, or can be (KEP-4381). Of
// alternatives in a claim it prefers the first.
type devices struct {
	clock clock.PassiveClock
	// selectors has the most recent compiled CEL expressions.
	selectors *cel.Cache
}

func newDevices(clock clock.PassiveClock) devices {
	const compiled = 10
	return devices{clock, cel.NewCache(compiled, cel.Features{EnableConsumableCapacity: true})}
}

func (devices) Name() string { return "DynamicResources" }

// DevicesMissing returns why a pod must wait for ResourceClaims, which it needs before it is tried on
// any node (upstream: PreEnqueue); nil if it need not.
func DevicesMissing(cluster *model.Cluster, pod *model.Pod) error {
	_, err := resourceClaims(cluster, pod)
	return err
}

// use is a claim of a pod, and for whom it is reserved: the pod, or the PodGroup that has the same claim
// (KEP-5729).
type use struct {
	*resourcev1.ResourceClaim
	user resourcev1.ResourceClaimConsumerReference
}

// resourceClaims returns the claims of a pod.
func resourceClaims(cluster *model.Cluster, pod *model.Pod) ([]use, error) {
	var claims []use
	group := cluster.ObjectOf(pod)
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		name, generated, err := resourceclaim.Name(pod.Pod, wanted)
		if err != nil {
			return nil, err
		}
		if name == nil {
			// No claim was needed.
			continue
		}
		claim := cluster.Devices.Claim(types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		switch {
		case claim == nil:
			return nil, fmt.Errorf("could not find ResourceClaim %q", pod.Namespace+"/"+*name)
		case claim.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resourceclaim %q is being deleted", claim.Name)
		}
		if generated {
			if err := resourceclaim.IsForPod(pod.Pod, claim, pod.IsInGroup()); err != nil {
				return nil, err
			}
		}
		user, err := resourceclaim.BindTo(pod.Pod, group, wanted)
		if err != nil {
			return nil, err
		}
		claims = append(claims, use{claim, user})
	}
	return claims, nil
}

func (f devices) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	if len(pod.Spec.ResourceClaims)+len(pod.Requests.Scalar) == 0 {
		return nil, nil
	}
	claims, err := resourceClaims(cluster, pod)
	if err != nil {
		return nil, rejectUnresolvable(err.Error())
	}
	extended := extendedOf(cluster.Devices, pod)
	if len(claims) == 0 && extended == nil {
		return nil, nil
	}
	check := &deviceCheck{clock: f.clock, pod: pod, group: cluster.ObjectOf(pod), claims: claims, extended: extended,
		pending: map[types.UID]*resourcev1.AllocationResult{}, nodes: map[string]*nodeAllocation{}}
	for _, claim := range claims {
		if rejection := check.add(cluster.Devices, claim.ResourceClaim); rejection != nil {
			return nil, rejection
		}
	}
	if len(check.unallocated) > 0 || extended != nil {
		if check.allocator, err = newAllocator(cluster.Devices, f.selectors); err != nil {
			return nil, failure(err)
		}
	}
	return check, nil
}

// add adds a claim that can be used or allocated.
func (c *deviceCheck) add(devices *model.Devices, claim *resourcev1.ResourceClaim) *Rejection {
	if devices.IsReleasing(claim.UID) {
		return rejectUnresolvable(fmt.Sprintf("resource claim %s is in the process of being released", model.Key(claim)))
	}
	allocation := claim.Status.Allocation
	if allocation == nil {
		pending, shared := devices.Pending(claim.UID, c.pod.Group)
		switch {
		case shared:
			c.pending[claim.UID], allocation = pending, pending
		case pending != nil:
			return rejectUnresolvable(fmt.Sprintf("resource claim %s is in the process of being allocated", model.Key(claim)))
		}
	}
	if allocation != nil {
		available := availability{claim: claim}
		if allocation.NodeSelector != nil {
			selector, err := nodeaffinity.NewNodeSelector(allocation.NodeSelector)
			if err != nil {
				return failure(err)
			}
			available.nodes = selector
		}
		c.allocated = append(c.allocated, available)
		return nil
	}
	c.unallocated = append(c.unallocated, claim)
	return rejectClasses(devices, claim)
}

// rejectClasses returns why a class of a claim cannot be used, or nil.
func rejectClasses(devices *model.Devices, claim *resourcev1.ResourceClaim) *Rejection {
	for _, request := range claim.Spec.Devices.Requests {
		switch {
		case request.Exactly != nil:
			if devices.Classes[request.Exactly.DeviceClassName] == nil {
				return classNotFound(request.Name, request.Exactly.DeviceClassName)
			}
		case len(request.FirstAvailable) > 0:
			for _, alternative := range request.FirstAvailable {
				if devices.Classes[alternative.DeviceClassName] == nil {
					return classNotFound(request.Name+"/"+alternative.Name, alternative.DeviceClassName)
				}
			}
		default:
			return rejectUnresolvable(fmt.Sprintf("resource claim %s, request %s: unknown request type", model.Key(claim), request.Name))
		}
	}
	return nil
}

func classNotFound(request, class string) *Rejection {
	return rejectUnresolvable(fmt.Sprintf("request %s: device class %s does not exist", request, class))
}

func (devices) Wakes(cluster *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded, DeviceClassChanged, SliceChanged, SelfChanged:
		return true
	case NodeChanged:
		return !maps.Equal(event.OldNode.Labels, event.Node.Labels) ||
			!equality.Semantic.DeepEqual(event.OldNode.Status.Allocatable, event.Node.Status.Allocatable)
	case ResourceClaimChanged:
		return changesDevicesOf(cluster, event, pod)
	default:
		return false
	}
}

// changesDevicesOf reports whether a change of a ResourceClaim frees devices, or is about a claim of a
// pod.
func changesDevicesOf(cluster *model.Cluster, event *Event, pod *model.Pod) bool {
	before, after := states[*resourcev1.ResourceClaim](event)
	if before != nil && before.Status.Allocation != nil && (after == nil || after.Status.Allocation == nil) {
		return true
	}
	if after == nil && before != nil && model.IsExtended(before) && metav1.IsControlledBy(before, pod) {
		return true
	}
	if after == nil || before != nil && equality.Semantic.DeepEqual(&before.Status, &after.Status) {
		return false
	}
	claims, err := resourceClaims(cluster, pod)
	if err != nil {
		return false
	}
	for _, claim := range claims {
		if claim.UID == after.UID {
			return true
		}
	}
	return false
}

// Applies reports whether a claim of a pod has a prioritized list (KEP-4816).
func (devices) Applies(cluster *model.Cluster, pod *model.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 && hasAlternatives(cluster, pod)
}

func (f devices) Score(cluster *model.Cluster, pod *model.Pod, nodes []*model.Node, scores []int64) {
	check, _ := f.For(cluster, pod)
	devices, _ := check.(*deviceCheck)
	if devices == nil {
		return
	}
	for i, node := range nodes {
		scores[i] = devices.score(node)
	}
	normalize(scores, false)
}

func hasAlternatives(cluster *model.Cluster, pod *model.Pod) bool {
	claims, _ := resourceClaims(cluster, pod)
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			if len(request.FirstAvailable) > 0 {
				return true
			}
		}
	}
	return false
}
