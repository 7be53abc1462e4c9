// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

// accessMode returns a volume's access mode as CSI has it. Drivers that tell one writer from several writers
// on a node get the finer modes (KEP-2485).
func accessMode(mode v1.PersistentVolumeAccessMode, distinguishesWriters bool) csi.VolumeCapability_AccessMode_Mode {
	switch mode {
	case v1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case v1.ReadWriteOnce:
		if distinguishesWriters {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if distinguishesWriters {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}

// capability describes how a volume is used.
func (d *driver) capability(ctx context.Context, v *Volume, withGroup bool) (*csi.VolumeCapability, error) {
	distinguishes, err := d.can(ctx, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return nil, err
	}
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(v.accessMode(), distinguishes)}}
	if v.isBlock() {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return capability, nil
	}
	mount := &csi.VolumeCapability_MountVolume{FsType: v.fsType(), MountFlags: v.mountOptions()}
	if group := v.group(); group != nil && withGroup {
		mount.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	return capability, nil
}
