// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// Validate implements plugins.Handler.
func (m *Manager) Validate(name, endpoint string, versions []string) error {
	if _, err := m.drivers.check(name, endpoint, versions); err != nil {
		return fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: %w", name, endpoint, err)
	}
	return nil
}

// Register implements plugins.Handler. The driver is registered once the CSINode and the Node have it.
func (m *Manager) Register(ctx context.Context, name, endpoint string, versions []string) error {
	version, err := m.drivers.check(name, endpoint, versions)
	if err != nil {
		return err
	}
	if _, err := m.drivers.add(name, endpoint, version); err != nil {
		return err
	}
	if err := m.refreshInfo(ctx, name); err != nil {
		m.drivers.remove(name, endpoint)
		m.forgetInfo(name)
		return err
	}
	klog.FromContext(ctx).Info("Registered a CSI driver", "driver", name, "endpoint", endpoint)
	return nil
}

// Deregister implements plugins.Handler.
func (m *Manager) Deregister(ctx context.Context, name, endpoint string) {
	if !m.drivers.remove(name, endpoint) {
		return
	}
	m.forgetInfo(name)
	if err := m.uninstall(ctx, name); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove a CSI driver from the CSINode", "driver", name)
		return
	}
	klog.FromContext(ctx).Info("Removed a CSI driver", "driver", name)
}

// refreshInfo asks a driver for its identity on this node, and publishes it.
func (m *Manager) refreshInfo(ctx context.Context, name string) error {
	d, err := m.drivers.get(name)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	response, err := d.node.NodeGetInfo(call, &csi.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	if response.GetNodeId() == "" {
		return errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	}
	topology := response.GetAccessibleTopology().GetSegments()
	m.mu.Lock()
	m.info[name], m.labels[name] = infoOf(name, response), topology
	m.mu.Unlock()
	return m.install(ctx, name)
}

// infoOf returns a driver's entry in the CSINode.
func infoOf(name string, response *csi.NodeGetInfoResponse) storagev1.CSINodeDriver {
	entry := storagev1.CSINodeDriver{
		Name: name, NodeID: response.GetNodeId(),
		TopologyKeys: sets.List(sets.KeySet(response.GetAccessibleTopology().GetSegments())),
	}
	if count := response.GetMaxVolumesPerNode(); count > 0 {
		limited := int32(min(count, math.MaxInt32))
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: &limited}
	}
	return entry
}

func (m *Manager) forgetInfo(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.info, name)
	delete(m.labels, name)
}

// updateCheck is how often the manager looks for drivers whose number of volumes is to be read again. It is the
// shortest period that a CSIDriver may have.
const updateCheck = 10 * time.Second

// Run creates the CSINode, also after the Node was replaced, and keeps the number of volumes in it up to date
// for drivers that want that (KEP-4876).
func (m *Manager) Run(ctx context.Context) {
	m.ensure(ctx)
	owner := m.options.Node().UID
	updated := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.options.Clock.After(updateCheck):
			m.updateCounts(ctx, updated)
			owner = m.reinstall(ctx, owner)
		}
	}
}

// ensure creates the CSINode, and retries until it succeeds.
func (m *Manager) ensure(ctx context.Context) {
	const first, last = time.Second, time.Minute
	for pause := first; ; pause = min(2*pause, last) {
		err := m.writeCSINode(ctx, func(drivers []storagev1.CSINodeDriver) []storagev1.CSINodeDriver { return drivers })
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Cannot create the CSINode, will retry")
		select {
		case <-ctx.Done():
		case <-m.options.Clock.After(pause):
		}
	}
}

// reinstall publishes all drivers again if the Node is not the one that they were published for. It returns the
// Node for which they are.
func (m *Manager) reinstall(ctx context.Context, owner types.UID) types.UID {
	node := m.options.Node().UID
	if node == owner {
		return owner
	}
	m.ensure(ctx)
	for _, d := range m.drivers.all() {
		if err := m.install(ctx, d.name); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot publish a CSI driver for the new Node, will retry", "driver", d.name)
			return owner
		}
	}
	return node
}

// updateCounts asks each driver whose period is over.
func (m *Manager) updateCounts(ctx context.Context, updated map[string]time.Time) {
	now := m.options.Clock.Now()
	for _, d := range m.drivers.all() {
		s, err := m.settings(ctx, d.name)
		last, known := updated[d.name]
		switch {
		case err != nil || s.updatePeriod <= 0:
			delete(updated, d.name)
		case !known:
			updated[d.name] = now
		case now.Sub(last) >= time.Duration(s.updatePeriod)*time.Second:
			updated[d.name] = now
			m.updateCount(ctx, d.name)
		}
	}
}

// replaceDriver returns the drivers with a new or changed entry.
func replaceDriver(drivers []storagev1.CSINodeDriver, entry storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
	return append(withoutDriver(drivers, entry.Name), entry)
}

func withoutDriver(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(drivers), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}
