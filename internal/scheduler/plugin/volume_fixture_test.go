// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/scheduler/model"
)

type (
	claimOption  func(*v1.PersistentVolumeClaim)
	volumeOption func(*v1.PersistentVolume)
)

// claim is an unbound claim of 1Gi.
func claim(name, class string, opts ...claimOption) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:        v1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
		},
	}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

func boundTo(volumeName string) claimOption {
	return func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName = volumeName
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnBindCompleted, "yes")
	}
}

func sized(size string) claimOption {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.Resources.Requests = list("storage", size) }
}

func selected(node string) claimOption {
	return func(c *v1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, node)
	}
}

func oncePod(c *v1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
}

// pv is an available volume.
func pv(name, class, size string, opts ...volumeOption) *v1.PersistentVolume {
	v := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeSpec{
			StorageClassName: class,
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteOncePod},
			Capacity:         list("storage", size),
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	for _, opt := range opts {
		opt(v)
	}
	return v
}

func onlyOn(node string) volumeOption {
	return func(v *v1.PersistentVolume) {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
}

func ownedByClaim(name string) volumeOption {
	return func(v *v1.PersistentVolume) {
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: name, UID: types.UID(name)}
	}
}

func heldVolume(v *v1.PersistentVolume) {
	metav1.SetMetaDataAnnotation(&v.ObjectMeta, ownership.HoldAnnotation, "")
}

func heldClaim(c *v1.PersistentVolumeClaim) {
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, ownership.HoldAnnotation, "")
}

func ofDriver(driver, handle string) volumeOption {
	return func(v *v1.PersistentVolume) {
		v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	}
}

func volumeLabel(key, value string) volumeOption {
	return func(v *v1.PersistentVolume) { metav1.SetMetaDataLabel(&v.ObjectMeta, key, value) }
}

func class(name, provisioner string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	if len(zones) > 0 {
		c.AllowedTopologies = []v1.TopologySelectorTerm{{
			MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: v1.LabelTopologyZone, Values: zones}},
		}}
	}
	return c
}

func driver(name string, capacity, present bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{
		StorageCapacity: &capacity, PreventPodSchedulingIfMissing: &present,
	}}
}

func csiNode(name, driver string, limit int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(limit)}}},
	}}
}

func capacity(class, node, size string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "driver", Name: class + node}, StorageClassName: class,
		Capacity: ptr.To(resource.MustParse(size)), NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelHostname: node}},
	}
}

func attached(node, attacher, volumeName string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: node + volumeName},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Attacher: attacher, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volumeName},
		},
	}
}

func using(claims ...string) podOption {
	return func(p *v1.Pod) {
		for _, name := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

func withVolume(source v1.VolumeSource) podOption {
	return func(p *v1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "v", VolumeSource: source}) }
}

// store adds objects of storage to a cluster.
func store(c *model.Cluster, objects ...any) *model.Cluster {
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.PersistentVolumeClaim:
			c.Volumes.SetClaim(object)
		case *v1.PersistentVolume:
			c.Volumes.SetVolume(object)
		case *storagev1.StorageClass:
			c.Volumes.Classes.Set(object.Name, object)
		case *storagev1.CSIDriver:
			c.Volumes.Drivers.Set(object.Name, object)
		case *storagev1.CSINode:
			c.Volumes.CSINodes.Set(object.Name, object)
		case *storagev1.CSIStorageCapacity:
			c.Volumes.Capacities.Set(model.Key(object), object)
		case *storagev1.VolumeAttachment:
			c.Volumes.SetAttachment(object)
		default:
			panic(fmt.Sprintf("%T", object))
		}
	}
	return c
}
