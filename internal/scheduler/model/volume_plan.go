// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

// VolumePlan is how the unbound claims of a pod get volumes on the pod's node.
type VolumePlan struct {
	// Bind has the claims that get an existing volume.
	Bind []Match
	// Provision has the claims for which a volume is created.
	Provision []Provision
}

// Match is a claim with the volume that it gets.
type Match struct {
	Claim  *v1.PersistentVolumeClaim
	Volume *v1.PersistentVolume
	// Write is whether the volume does not belong to the claim in the API yet.
	Write bool
}

// Provision is a claim for which a volume is created.
type Provision struct {
	Claim *v1.PersistentVolumeClaim
	// Capacity is the node's storage for the claim's class, or nil if it is not known.
	Capacity *resource.Quantity
	// Write is whether the API does not have the claim's node yet.
	Write bool
}

// Claims returns the keys of the plan's claims.
func (p *VolumePlan) Claims() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, match := range p.Bind {
		keys = append(keys, Key(match.Claim))
	}
	for _, provision := range p.Provision {
		keys = append(keys, Key(provision.Claim))
	}
	return keys
}

// IsEmpty reports whether there is nothing to do.
func (p *VolumePlan) IsEmpty() bool { return len(p.Bind)+len(p.Provision) == 0 }

// Assume makes a plan for a pod on a node count for all later decisions. It sets what is to be
// written in the plan's volumes and claims.
func (v *Volumes) Assume(plan *VolumePlan, pod types.UID, node string) error {
	for i := range plan.Bind {
		match := &plan.Bind[i]
		name := match.Volume.Name
		bound, changed, err := volume.GetBindVolumeToClaim(match.Volume, match.Claim)
		if err != nil {
			v.Release(plan, pod)
			return err
		}
		// Another pod may have assumed it, and its write may still fail.
		match.Write = changed || v.assumedVolumes[name] != nil
		match.Volume = bound
		v.assumedVolumes.add(name, bound, pod)
	}
	for i := range plan.Provision {
		provision := &plan.Provision[i]
		key := Key(provision.Claim)
		claim := provision.Claim.DeepCopy()
		provision.Write = claim.Annotations[volume.AnnSelectedNode] != node || v.assumedClaims[key] != nil
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnSelectedNode, node)
		provision.Claim = claim
		v.assumedClaims.add(key, claim, pod)
	}
	return nil
}

// Release ends a pod's need of what it assumed.
func (v *Volumes) Release(plan *VolumePlan, pod types.UID) {
	for _, match := range plan.Bind {
		v.assumedVolumes.release(match.Volume.Name, pod)
	}
	for _, provision := range plan.Provision {
		v.assumedClaims.release(Key(provision.Claim), pod)
	}
}
