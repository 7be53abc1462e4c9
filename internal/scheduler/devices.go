// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
)

func (m *machine) setResourceClaim(claim *resourcev1.ResourceClaim) {
	before := m.cluster.Devices.SetClaim(claim)
	m.queue.Ungate()
	wakeFor(m, plugin.ResourceClaimChanged, before, claim)
	m.progressFor(waitKey{true, model.Key(claim)})
}

func (m *machine) removeResourceClaim(claim *resourcev1.ResourceClaim) {
	m.cluster.Devices.RemoveClaim(model.Key(claim))
	wakeFor(m, plugin.ResourceClaimChanged, claim, nil)
	m.progressFor(waitKey{true, model.Key(claim)})
}

// release has a lane remove the allocation of a claim, or a user. The claim is not used meanwhile.
func (m *machine) release(claim *resourcev1.ResourceClaim) {
	if claim != nil {
		m.cluster.Devices.Release(claim.UID)
	}
}

// released ends what release began. now is what a lane has written, or nil.
func (m *machine) released(claim, now *resourcev1.ResourceClaim) {
	if now != nil {
		m.wrote(now)
	}
	m.cluster.Devices.Released(claim.UID)
	wakeFor(m, plugin.ResourceClaimChanged, nil, claim)
}

func (m *machine) setDeviceClass(class *resourcev1.DeviceClass) {
	wakeFor(m, plugin.DeviceClassChanged, m.cluster.Devices.Classes.Set(class.Name, class), class)
}

func (m *machine) removeDeviceClass(class *resourcev1.DeviceClass) {
	delete(m.cluster.Devices.Classes, class.Name)
}

func (m *machine) setSlice(slice *resourcev1.ResourceSlice) {
	wakeFor(m, plugin.SliceChanged, m.cluster.Devices.SetSlice(slice), slice)
}

// removeSlice requeues pods, because a pool may be complete without an outdated slice.
func (m *machine) removeSlice(slice *resourcev1.ResourceSlice) {
	m.cluster.Devices.RemoveSlice(slice.Name)
	wakeFor(m, plugin.SliceChanged, slice, nil)
}

func (m *machine) setTaintRule(rule *resourcev1.DeviceTaintRule) {
	m.cluster.Devices.SetTaintRule(rule)
	m.wake(plugin.Event{Kind: plugin.SliceChanged})
}

func (m *machine) removeTaintRule(rule *resourcev1.DeviceTaintRule) {
	m.cluster.Devices.RemoveTaintRule(rule.Name)
	m.wake(plugin.Event{Kind: plugin.SliceChanged})
}
