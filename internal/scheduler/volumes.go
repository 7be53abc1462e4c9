// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
)

// wakeFor requeues the pods that a change of an object may help. before is nil for a new object,
// after for a removed one.
func wakeFor[T any](m *machine, kind plugin.Kind, before, after *T) {
	event := plugin.Event{Kind: kind}
	if before != nil {
		event.OldObject = before
	}
	if after != nil {
		event.Object = after
	}
	m.wake(event)
}

func (m *machine) setClaim(claim *v1.PersistentVolumeClaim) {
	before := m.cluster.Volumes.SetClaim(claim)
	wakeFor(m, plugin.ClaimChanged, before, claim)
	m.progressFor(waitKey{claim: model.Key(claim)})
}

func (m *machine) removeClaim(claim *v1.PersistentVolumeClaim) {
	m.cluster.Volumes.RemoveClaim(model.Key(claim))
	m.progressFor(waitKey{claim: model.Key(claim)})
}

func (m *machine) setVolume(volume *v1.PersistentVolume) {
	before := m.cluster.Volumes.SetVolume(volume)
	wakeFor(m, plugin.VolumeChanged, before, volume)
	m.progressForVolume(before)
	m.progressForVolume(volume)
}

func (m *machine) removeVolume(volume *v1.PersistentVolume) {
	m.cluster.Volumes.RemoveVolume(volume.Name)
	m.progressForVolume(volume)
}

// progressForVolume looks at the pods that wait for the claim of a volume.
func (m *machine) progressForVolume(volume *v1.PersistentVolume) {
	if volume == nil || volume.Spec.ClaimRef == nil {
		return
	}
	claim := volume.Spec.ClaimRef
	m.progressFor(waitKey{claim: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}})
}

func (m *machine) setClass(class *storagev1.StorageClass) {
	wakeFor(m, plugin.ClassChanged, m.cluster.Volumes.Classes.Set(class.Name, class), class)
}

func (m *machine) removeClass(class *storagev1.StorageClass) {
	delete(m.cluster.Volumes.Classes, class.Name)
}

func (m *machine) setCSINode(node *storagev1.CSINode) {
	before := m.cluster.Volumes.CSINodes.Set(node.Name, node)
	if before == nil || !equality.Semantic.DeepEqual(&before.Spec, &node.Spec) {
		wakeFor(m, plugin.CSINodeChanged, before, node)
	}
}

func (m *machine) removeCSINode(node *storagev1.CSINode) {
	delete(m.cluster.Volumes.CSINodes, node.Name)
	wakeFor(m, plugin.CSINodeChanged, node, nil)
}

func (m *machine) setDriver(driver *storagev1.CSIDriver) {
	wakeFor(m, plugin.DriverChanged, m.cluster.Volumes.Drivers.Set(driver.Name, driver), driver)
}

func (m *machine) removeDriver(driver *storagev1.CSIDriver) {
	delete(m.cluster.Volumes.Drivers, driver.Name)
	wakeFor(m, plugin.DriverChanged, driver, nil)
}

func (m *machine) setCapacity(capacity *storagev1.CSIStorageCapacity) {
	wakeFor(m, plugin.CapacityChanged, m.cluster.Volumes.Capacities.Set(model.Key(capacity), capacity), capacity)
}

func (m *machine) removeCapacity(capacity *storagev1.CSIStorageCapacity) {
	delete(m.cluster.Volumes.Capacities, model.Key(capacity))
}

func (m *machine) setAttachment(attachment *storagev1.VolumeAttachment) {
	m.cluster.Volumes.SetAttachment(attachment)
}

func (m *machine) removeAttachment(attachment *storagev1.VolumeAttachment) {
	m.cluster.Volumes.RemoveAttachment(attachment)
	wakeFor(m, plugin.AttachmentGone, attachment, nil)
}
