// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// The reasons why the volumes of a pod are not available on a node.
const (
	wrongNode     = "node(s) didn't match PersistentVolume's node affinity"
	noVolume      = "node(s) didn't find available persistent volumes to bind"
	noSpace       = "node(s) did not have enough free storage"
	missingVolume = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

// bindable checks the nodes for a pod with claims.
type bindable struct {
	volumes        *model.Volumes
	bound, unbound []*v1.PersistentVolumeClaim
	// free has the volumes that the unbound claims may get, by class.
	free map[string][]*v1.PersistentVolume
}

func (c *bindable) Check(node *model.Node) *Rejection {
	if _, reasons := c.plan(node); len(reasons) > 0 {
		return &Rejection{Reasons: reasons, Unresolvable: true}
	}
	return nil
}

func (c *bindable) Reserve(node *model.Node, reservation *model.Reservation) {
	reservation.Volumes, _ = c.plan(node)
}

// plan returns how the unbound claims get volumes on a node, or why that is not possible.
func (c *bindable) plan(node *model.Node) (model.VolumePlan, []string) {
	var reasons []string
	boundReason := c.rejectBound(node)
	if boundReason == wrongNode {
		reasons = append(reasons, wrongNode)
	}
	plan, reason := c.planUnbound(node)
	if reason != "" {
		reasons = append(reasons, reason)
	}
	if boundReason == missingVolume {
		reasons = append(reasons, missingVolume)
	}
	return plan, reasons
}

// rejectBound returns why a volume of a bound claim is not available on a node, or "".
func (c *bindable) rejectBound(node *model.Node) string {
	for _, claim := range c.bound {
		object := c.volumes.Volume(claim.Spec.VolumeName)
		if object == nil {
			return missingVolume
		}
		if volume.CheckNodeAffinity(object, node.Labels) != nil {
			return wrongNode
		}
	}
	return ""
}

func (c *bindable) planUnbound(node *model.Node) (model.VolumePlan, string) {
	var toMatch, toProvision []*v1.PersistentVolumeClaim
	for _, claim := range c.unbound {
		selected, found := claim.Annotations[volume.AnnSelectedNode]
		switch {
		case !found:
			toMatch = append(toMatch, claim)
		case selected == node.Name:
			toProvision = append(toProvision, claim)
		default:
			return model.VolumePlan{}, noVolume
		}
	}
	matches, unmatched := c.match(toMatch, node.Node)
	provisions, reason := c.provision(append(toProvision, unmatched...), node.Node)
	return model.VolumePlan{Bind: matches, Provision: provisions}, reason
}

// match finds the smallest free volume for each claim, and begins with the smallest claim.
func (c *bindable) match(claims []*v1.PersistentVolumeClaim, node *v1.Node) (matches []model.Match, unmatched []*v1.PersistentVolumeClaim) {
	slices.SortStableFunc(claims, func(a, b *v1.PersistentVolumeClaim) int {
		return a.Spec.Resources.Requests.Storage().Cmp(*b.Spec.Resources.Requests.Storage())
	})
	chosen := map[string]*v1.PersistentVolume{}
	for _, claim := range claims {
		free := c.free[volume.GetPersistentVolumeClaimClass(claim)]
		// It fails only if the claim's selector is invalid, which validation excludes.
		object, err := volume.FindMatchingVolume(claim, free, node, chosen, true, true)
		if err != nil || object == nil {
			unmatched = append(unmatched, claim)
			continue
		}
		chosen[object.Name] = object
		matches = append(matches, model.Match{Claim: claim, Volume: object})
	}
	return matches, unmatched
}

// provision returns the claims for which a volume can be created, or why it cannot for one of them.
func (c *bindable) provision(claims []*v1.PersistentVolumeClaim, node *v1.Node) ([]model.Provision, string) {
	var provisions []model.Provision
	for _, claim := range claims {
		class := c.volumes.Classes[volume.GetPersistentVolumeClaimClass(claim)]
		if class.Provisioner == "" || class.Provisioner == volume.NotSupportedProvisioner || !allows(class.AllowedTopologies, node.Labels) {
			return nil, noVolume
		}
		capacity, enough := c.capacity(claim, class, node)
		if !enough {
			return nil, noSpace
		}
		provisions = append(provisions, model.Provision{Claim: claim, Capacity: capacity})
	}
	return provisions, ""
}

// allows reports whether one of a class's topologies, if it has any, matches a node.
func allows(topologies []v1.TopologySelectorTerm, node labels.Set) bool {
	if len(topologies) == 0 {
		return true
	}
	return slices.ContainsFunc(topologies, func(term v1.TopologySelectorTerm) bool {
		for _, need := range term.MatchLabelExpressions {
			if value, found := node[need.Key]; !found || !slices.Contains(need.Values, value) {
				return false
			}
		}
		return len(term.MatchLabelExpressions) > 0
	})
}

// capacity reports whether the class's driver has enough storage for a claim on a node, and how
// much it has for the class, if it tells (KEP-1472).
func (c *bindable) capacity(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node *v1.Node) (*resource.Quantity, bool) {
	size, sized := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if !sized || !tracksCapacity(c.volumes.Drivers[class.Provisioner]) {
		return nil, true
	}
	var most *resource.Quantity
	for _, capacity := range c.volumes.Capacities {
		if capacity.StorageClassName != class.Name || capacity.NodeTopology == nil {
			continue
		}
		largest := largestVolume(capacity)
		if largest == nil || largest.Cmp(size) < 0 || !model.Selector(capacity.NodeTopology).Matches(labels.Set(node.Labels)) {
			continue
		}
		if has := total(capacity); most == nil || has.Cmp(*most) > 0 {
			most = has
		}
	}
	return most, most != nil
}

func tracksCapacity(driver *storagev1.CSIDriver) bool {
	return driver != nil && driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity
}

// largestVolume returns the size of the largest volume that can be created, or nil if none can.
func largestVolume(capacity *storagev1.CSIStorageCapacity) *resource.Quantity {
	if capacity.MaximumVolumeSize != nil {
		return capacity.MaximumVolumeSize
	}
	return capacity.Capacity
}

// total returns the whole storage, which may be unknown although the largest volume is known.
func total(capacity *storagev1.CSIStorageCapacity) *resource.Quantity {
	if capacity.Capacity == nil {
		return &resource.Quantity{}
	}
	return capacity.Capacity
}
