// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// volumeZone keeps pods in the zones and regions that the labels of their volumes name.
type volumeZone struct{}

func (volumeZone) Name() string { return "VolumeZone" }

var wrongZone = rejectUnresolvable("node(s) had no available volume zone")

// zoneLabels are the labels for zones and regions, with the name that replaced each.
var zoneLabels = map[string]string{
	v1.LabelFailureDomainBetaZone:   v1.LabelTopologyZone,
	v1.LabelFailureDomainBetaRegion: v1.LabelTopologyRegion,
	v1.LabelTopologyZone:            v1.LabelTopologyZone,
	v1.LabelTopologyRegion:          v1.LabelTopologyRegion,
}

// zone is a zone label of a volume.
type zone struct {
	label  string
	values sets.Set[string]
}

func (volumeZone) For(cluster *model.Cluster, pod *model.Pod) (Check, *Rejection) {
	var zones []zone
	for _, claim := range pod.Claims {
		if claim.Ephemeral {
			continue
		}
		volume, rejection := volumeOf(cluster.Volumes, claim)
		if rejection != nil {
			return nil, rejection
		}
		if volume != nil {
			zones = append(zones, zonesOf(volume)...)
		}
	}
	if len(zones) == 0 {
		return nil, nil
	}
	return CheckFunc(func(node *model.Node) *Rejection {
		if isOutside(node.Labels, zones) {
			return wrongZone
		}
		return nil
	}), nil
}

// volumeOf returns the volume of a claim; nil if it is bound when the pod is placed.
func volumeOf(volumes *model.Volumes, claim model.Claim) (*v1.PersistentVolume, *Rejection) {
	object := volumes.Claim(claim.Key)
	if object == nil {
		return nil, claimNotFound(claim.Key)
	}
	if name := object.Spec.VolumeName; name != "" {
		if found := volumes.Volume(name); found != nil {
			return found, nil
		}
		return nil, rejectUnresolvable(fmt.Sprintf("persistentvolume %q not found", name))
	}
	name := volume.GetPersistentVolumeClaimClass(object)
	if name == "" {
		return nil, rejectUnresolvable("PersistentVolumeClaim had no pv name and storageClass name")
	}
	class := volumes.Classes[name]
	switch {
	case class == nil:
		return nil, rejectUnresolvable(fmt.Sprintf("storageclass.storage.k8s.io %q not found", name))
	case class.VolumeBindingMode == nil:
		return nil, rejectUnresolvable(fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", name))
	case *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return nil, rejectUnresolvable("PersistentVolume had no name")
	}
	return nil, nil
}

// zonesOf returns the zone labels of a volume. One with an empty name in its list is ignored.
func zonesOf(volume *v1.PersistentVolume) []zone {
	var zones []zone
	for label := range zoneLabels {
		value, found := volume.Labels[label]
		if !found {
			continue
		}
		values := sets.New[string]()
		for name := range strings.SplitSeq(value, "__") {
			values.Insert(strings.TrimSpace(name))
		}
		if !values.Has("") {
			zones = append(zones, zone{label, values})
		}
	}
	return zones
}

// isOutside reports whether a node is in another zone. A node without zone labels is in all.
func isOutside(node map[string]string, zones []zone) bool {
	hasZone := false
	for label := range zoneLabels {
		if _, found := node[label]; found {
			hasZone = true
		}
	}
	if !hasZone {
		return false
	}
	for _, zone := range zones {
		value, found := node[zone.label]
		if !found {
			value, found = node[zoneLabels[zone.label]]
		}
		if !found || !zone.values.Has(value) {
			return true
		}
	}
	return false
}

func (volumeZone) Wakes(_ *model.Cluster, event *Event, pod *model.Pod) bool {
	switch event.Kind {
	case NodeAdded:
		return true
	case NodeChanged:
		return !maps.Equal(event.OldNode.Labels, event.Node.Labels)
	case ClaimChanged:
		return changesClaimOf(event, pod)
	case VolumeChanged:
		before, after := states[*v1.PersistentVolume](event)
		return before == nil || !maps.Equal(before.Labels, after.Labels)
	case ClassChanged:
		before, _ := states[*storagev1.StorageClass](event)
		return before == nil
	default:
		return false
	}
}
