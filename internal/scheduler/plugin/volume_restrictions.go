// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// volumeRestrictions keeps a claim with access mode ReadWriteOncePod to one pod (KEP-2485), and
// pods with the same disk off one node.
type volumeRestrictions struct{}

func (volumeRestrictions) Name() string { return "VolumeRestrictions" }

var (
	claimInUse = reject("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	diskInUse  = reject("node(s) had no available disk")
)

func (volumeRestrictions) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	disks := disksOf(pod)
	if len(disks)+len(pod.Claims) == 0 {
		return nil, nil
	}
	check := &restrictedVolumes{disks: disks}
	for _, claim := range pod.Claims {
		if claim.Ephemeral {
			continue
		}
		object := cluster.Volumes.Claim(claim.Key)
		if object == nil {
			return nil, claimNotFound(claim.Key)
		}
		if slices.Contains(object.Spec.AccessModes, v1.ReadWriteOncePod) {
			check.exclusive = append(check.exclusive, claim.Key)
			if cluster.IsClaimInUse(claim.Key) {
				check.conflicts++
			}
		}
	}
	if len(check.disks)+len(check.exclusive) == 0 {
		return nil, nil
	}
	return check, nil
}

func claimNotFound(claim types.NamespacedName) *Rejection {
	return rejectUnresolvable(fmt.Sprintf("persistentvolumeclaim %q not found", claim.Name))
}

// restrictedVolumes checks the nodes for a pod with restricted volumes.
type restrictedVolumes struct {
	disks     []*v1.Volume
	exclusive []types.NamespacedName
	// conflicts counts the uses of the exclusive claims by pods on nodes.
	conflicts int
}

func (c *restrictedVolumes) Check(node *model.Node) *Rejection {
	for _, disk := range c.disks {
		for _, pod := range node.Pods {
			if slices.ContainsFunc(pod.Spec.Volumes, func(other v1.Volume) bool { return excludes(disk, &other) }) {
				return diskInUse
			}
		}
	}
	if c.conflicts > 0 {
		return claimInUse
	}
	return nil
}

func (c *restrictedVolumes) Clone() Spanning {
	clone := *c
	return &clone
}

func (c *restrictedVolumes) Move(pod *model.Pod, _ *model.Node, delta int) {
	for _, claim := range pod.Claims {
		if !claim.Ephemeral && slices.Contains(c.exclusive, claim.Key) {
			c.conflicts += delta
		}
	}
}

// disksOf returns the pod's volumes that may exclude other pods from a node.
func disksOf(pod *model.Pod) []*v1.Volume {
	var disks []*v1.Volume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil {
			disks = append(disks, v)
		}
	}
	return disks
}

// excludes reports whether two volumes are the same disk, and one of them is written.
func excludes(a, b *v1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		return a.GCEPersistentDisk.PDName == b.GCEPersistentDisk.PDName &&
			!(a.GCEPersistentDisk.ReadOnly && b.GCEPersistentDisk.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		return a.ISCSI.IQN == b.ISCSI.IQN && !(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		return sameImage(a.RBD, b.RBD) && !(a.RBD.ReadOnly && b.RBD.ReadOnly)
	default:
		return false
	}
}

func sameImage(a, b *v1.RBDVolumeSource) bool {
	shareMonitor := slices.ContainsFunc(a.CephMonitors, func(m string) bool { return slices.Contains(b.CephMonitors, m) })
	return shareMonitor && a.RBDPool == b.RBDPool && a.RBDImage == b.RBDImage
}

func (volumeRestrictions) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded:
		return true
	case PodGone:
		return frees(event.OldPod, pod)
	case ClaimChanged:
		return changesClaimOf(event, pod)
	default:
		return false
	}
}

// frees reports whether a pod that is gone used a claim or disk of a pending pod.
func frees(gone, pending *model.Pod) bool {
	for _, claim := range pending.Claims {
		if gone.Uses(claim.Key) {
			return true
		}
	}
	for _, disk := range disksOf(pending) {
		if slices.ContainsFunc(gone.Spec.Volumes, func(other v1.Volume) bool { return excludes(disk, &other) }) {
			return true
		}
	}
	return false
}

// changesClaimOf reports whether an event is about a claim of a pod.
func changesClaimOf(event *Event, pod *model.Pod) bool {
	_, claim := states[*v1.PersistentVolumeClaim](event)
	return claim != nil && pod.Uses(model.Key(claim))
}
