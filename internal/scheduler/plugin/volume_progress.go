// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// VolumesBound reports whether all claims of a plan that was written are bound. An error means that
// they cannot be bound on this node any more.
func VolumesBound(cluster *model.Cluster, plan *model.VolumePlan, node string) (bool, error) {
	if plan.IsEmpty() {
		return true, nil
	}
	on := cluster.Node(node)
	if on == nil {
		return false, fmt.Errorf("failed to get node %q: node %q not found", node, node)
	}
	for i := range plan.Bind {
		if done, err := isMatched(cluster.Volumes, &plan.Bind[i], on.Node); !done {
			return false, err
		}
	}
	for i := range plan.Provision {
		if done, err := isProvisioned(cluster.Volumes, plan.Provision[i].Claim, on.Node); !done {
			return false, err
		}
	}
	return true, nil
}

func isMatched(volumes *model.Volumes, match *model.Match, node *v1.Node) (bool, error) {
	object := volumes.StoredVolume(match.Volume.Name)
	if object == nil {
		return false, fmt.Errorf("failed to check binding: persistentvolumes %q not found", match.Volume.Name)
	}
	claim := volumes.StoredClaim(model.Key(match.Claim))
	if claim == nil || claim.UID != match.Claim.UID {
		return false, fmt.Errorf("failed to check binding: persistentvolumeclaims %q not found", model.Key(match.Claim))
	}
	if err := checkAffinity(object, node); err != nil {
		return false, err
	}
	if object.Spec.ClaimRef == nil || object.Spec.ClaimRef.UID == "" {
		return false, fmt.Errorf("ClaimRef got reset for pv %q", object.Name)
	}
	return isBound(claim), nil
}

func isProvisioned(volumes *model.Volumes, planned *v1.PersistentVolumeClaim, node *v1.Node) (bool, error) {
	claim := volumes.StoredClaim(model.Key(planned))
	switch {
	case claim == nil || claim.UID != planned.UID:
		return false, fmt.Errorf("failed to check provisioning pvc: persistentvolumeclaims %q not found", model.Key(planned))
	case claim.Annotations == nil:
		return false, fmt.Errorf("selectedNode annotation reset for PVC %q", claim.Name)
	case claim.Annotations[volume.AnnSelectedNode] != node.Name:
		// The provisioner removes the annotation if it cannot create the volume there.
		return false, fmt.Errorf("provisioning failed for PVC %q", claim.Name)
	case claim.Spec.VolumeName == "":
		return false, nil
	}
	object := volumes.StoredVolume(claim.Spec.VolumeName)
	if object == nil {
		// It was not seen yet, or it was deleted and the claim becomes lost.
		return false, nil
	}
	if err := checkAffinity(object, node); err != nil {
		return false, err
	}
	return isBound(claim), nil
}

func checkAffinity(object *v1.PersistentVolume, node *v1.Node) error {
	if err := volume.CheckNodeAffinity(object, node.Labels); err != nil {
		return fmt.Errorf("pv %q node affinity doesn't match node %q: %w", object.Name, node.Name, err)
	}
	return nil
}
