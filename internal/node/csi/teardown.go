// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/mounts"
)

// Teardown tears down one volume of a pod, which may be unknown to the API: it reads what to do from the
// pod's record.
func (m *Manager) Teardown(ctx context.Context, pod types.UID, volume string, block bool) error {
	p := place{layout: m.options.Layout, pod: pod, volume: volume, block: block}
	r, err := readRecord(p.record())
	if errors.Is(err, errNoRecord) {
		return forget(p)
	}
	if err != nil {
		return err
	}
	defer m.lock(keyOf(r.Driver, r.Handle))()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := m.unpublish(ctx, p, r); err != nil {
		return err
	}
	if err := m.unstage(ctx, p, r); err != nil {
		return err
	}
	if err := os.Remove(p.record()); err != nil {
		return err
	}
	if err := forget(p); err != nil {
		return err
	}
	m.unwant(pod, keyOf(r.Driver, r.Handle))
	return nil
}

// unpublish calls NodeUnpublishVolume if the driver was asked to publish the volume.
func (m *Manager) unpublish(ctx context.Context, p place, r record) error {
	if r.Asked != yes {
		return nil
	}
	d, err := m.drivers.get(r.Driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: %w", err)
	}
	request := &csi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: p.target()}
	if _, err := d.node.NodeUnpublishVolume(ctx, request); err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed: %w", err)
	}
	if err := stillMounted(p.target()); err != nil {
		return err
	}
	// A driver should have removed the target, but not all do.
	if err := removeEmpty(p.target()); err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [%s]: %w", p.target(), err)
	}
	return nil
}

// stillMounted returns an error if a driver has left a mount.
func stillMounted(path string) error {
	points, err := mounts.At(path)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("the CSI driver has not unmounted %s", strings.Join(points, ", "))
	}
	return err
}

// unstage calls NodeUnstageVolume if the driver was asked to stage the volume and no other pod refers to it.
func (m *Manager) unstage(ctx context.Context, p place, r record) error {
	node, err := readRecord(p.stagingRecord(r.Driver, r.Handle))
	if errors.Is(err, errNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	others, err := m.others(p.record(), keyOf(r.Driver, r.Handle))
	if err != nil || len(others) > 0 {
		return err
	}
	d, err := m.drivers.get(node.Driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: %w", err)
	}
	path := p.staging(r.Driver, r.Handle)
	request := &csi.NodeUnstageVolumeRequest{VolumeId: node.Handle, StagingTargetPath: path}
	m.setStaged(path, false)
	if _, err := d.node.NodeUnstageVolume(ctx, request); err != nil {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed: %w", err)
	}
	return m.forgetStaging(p, r.Driver, r.Handle)
}

// forgetStaging removes the staging directory, and the node's record last.
func (m *Manager) forgetStaging(p place, driver, handle string) error {
	path := p.staging(driver, handle)
	m.setStaged(path, false)
	if err := stillMounted(path); err != nil {
		return err
	}
	remove := removeEmpty
	if p.block {
		remove = mounts.RemoveAll // drivers keep files of their own beside a device
	}
	if err := remove(path); err != nil {
		return err
	}
	if err := os.Remove(p.stagingRecord(driver, handle)); err != nil {
		return err
	}
	if p.block {
		return nil
	}
	return removeEmpty(filepath.Dir(path))
}

// forget removes the pod's reference, after its record.
func forget(p place) error {
	if !p.block {
		return removeEmpty(p.dir())
	}
	for _, dir := range []string{filepath.Dir(p.target()), p.blockData(), filepath.Dir(p.blockData())} {
		_ = os.Remove(dir) // other pods may still need it
	}
	return removeEmpty(p.link())
}

// unwant records that a pod no longer needs a volume attached.
func (m *Manager) unwant(pod types.UID, key string) {
	m.mu.Lock()
	delete(m.wanted[pod], key)
	if len(m.wanted[pod]) == 0 {
		delete(m.wanted, pod)
	}
	m.mu.Unlock()
	if m.options.InUseChanged != nil {
		m.options.InUseChanged()
	}
}

// Released records that a pod, whose volumes are torn down, needs no volume attached. A volume that was never
// set up further than that has no record.
func (m *Manager) Released(pod types.UID) {
	m.mu.Lock()
	_, had := m.wanted[pod]
	delete(m.wanted, pod)
	m.mu.Unlock()
	if had && m.options.InUseChanged != nil {
		m.options.InUseChanged()
	}
}
