// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// volumeLimits keeps pods off nodes to which their CSI driver can attach no further volume, or that
// do not have a driver which demands to be there.
type volumeLimits struct{}

func (volumeLimits) Name() string { return "NodeVolumeLimits" }

var tooManyVolumes = reject("node(s) exceed max volume count")

// attachment is a volume of a CSI driver that a pod needs to be attached.
type attachment struct {
	driver, handle string
	// claim identifies a volume that does not exist yet.
	claim types.NamespacedName
}

func (volumeLimits) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	if len(pod.Claims) == 0 {
		return nil, nil
	}
	wanted := map[attachment]bool{}
	addAttachments(wanted, cluster.Volumes, pod)
	if len(wanted) == 0 {
		return nil, nil
	}
	return &attachable{cluster.Volumes, wanted}, nil
}

// addAttachments adds the CSI volumes of a pod's claims.
func addAttachments(to map[attachment]bool, volumes *model.Volumes, pod *model.Pod) {
	for _, claim := range pod.Claims {
		if a := attachmentOf(volumes, claim.Key); a.driver != "" {
			to[a] = true
		}
	}
}

// attachmentOf returns the CSI volume of a claim, which may not exist yet. It has no driver if the
// claim is not for a CSI driver, or unknown.
func attachmentOf(volumes *model.Volumes, key types.NamespacedName) attachment {
	claim := volumes.Claim(key)
	if claim == nil {
		return attachment{}
	}
	if object := volumes.Volume(claim.Spec.VolumeName); object != nil {
		if object.Spec.CSI == nil {
			return attachment{}
		}
		return attachment{driver: object.Spec.CSI.Driver, handle: object.Spec.CSI.VolumeHandle}
	}
	if class := volumes.Classes[volume.GetPersistentVolumeClaimClass(claim)]; class != nil {
		return attachment{driver: class.Provisioner, claim: key}
	}
	return attachment{}
}

// attachable checks the nodes for a pod with CSI volumes.
type attachable struct {
	volumes *model.Volumes
	wanted  map[attachment]bool
}

func (c *attachable) Check(node *model.Node) *Rejection {
	csiNode := c.volumes.CSINodes[node.Name]
	if driver := c.missingDriver(csiNode); driver != "" {
		return reject(driver + " CSI driver is not installed on the node")
	}
	limits := limitsOf(csiNode)
	if len(limits) == 0 {
		return nil
	}
	attached := map[attachment]bool{}
	for _, pod := range node.Pods {
		addAttachments(attached, c.volumes, pod)
	}
	c.addAttached(attached, node.Name)
	count := map[string]int64{}
	for a := range attached {
		count[a.driver]++
	}
	added := map[string]bool{}
	for a := range c.wanted {
		if !attached[a] {
			count[a.driver]++
			added[a.driver] = true
		}
	}
	for driver := range added {
		if limit, limited := limits[driver]; limited && count[driver] > limit {
			return tooManyVolumes
		}
	}
	return nil
}

// missingDriver returns a wanted driver that demands to be on a pod's node (CSIDriver's
// preventPodSchedulingIfMissing) and is not on this one; "" if there is none.
func (c *attachable) missingDriver(csiNode *storagev1.CSINode) string {
	wanted := map[string]bool{}
	for a := range c.wanted {
		wanted[a.driver] = true
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		driver := c.volumes.Drivers[name]
		if driver == nil || driver.Spec.PreventPodSchedulingIfMissing == nil || !*driver.Spec.PreventPodSchedulingIfMissing {
			continue
		}
		if csiNode == nil || !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name }) {
			return name
		}
	}
	return ""
}

// addAttached adds the volumes that are attached to a node, or are being attached or detached.
func (c *attachable) addAttached(to map[attachment]bool, node string) {
	for _, va := range c.volumes.Attachments(node) {
		name := va.Spec.Source.PersistentVolumeName
		if va.Spec.Attacher == "" || name == nil {
			continue
		}
		if object := c.volumes.Volume(*name); object != nil && object.Spec.CSI != nil {
			to[attachment{driver: va.Spec.Attacher, handle: object.Spec.CSI.VolumeHandle}] = true
		}
	}
}

// limitsOf returns how many volumes each driver can attach to a node.
func limitsOf(csiNode *storagev1.CSINode) map[string]int64 {
	if csiNode == nil {
		return nil
	}
	limits := map[string]int64{}
	for _, driver := range csiNode.Spec.Drivers {
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			limits[driver.Name] = int64(*driver.Allocatable.Count)
		}
	}
	return limits
}

func (volumeLimits) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded, CSINodeChanged, DriverChanged:
		return true
	case PodGone:
		return len(event.OldPod.Claims) > 0
	case AttachmentGone:
		return len(pod.Claims) > 0
	case ClaimChanged:
		return changesClaimOf(event, pod)
	case VolumeChanged:
		before, _ := states[any](event)
		return before == nil
	default:
		return false
	}
}
