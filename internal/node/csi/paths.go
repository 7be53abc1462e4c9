// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// Dir is the directory of a pod's volumes and devices of CSI drivers.
const Dir = "kubernetes.io~csi"

const recordFile = "vol_data.json"

// place is where a pod's volume is.
type place struct {
	layout rootdir.Layout
	pod    types.UID
	volume string
	block  bool
}

func (p place) shared() string { return p.layout.SharedVolumesDir("csi") }

// dir is the pod's directory of a volume that it mounts.
func (p place) dir() string {
	return filepath.Join(p.layout.VolumesDir(p.pod), Dir, p.volume)
}

// link is the pod's link to a volume that it has as a device.
func (p place) link() string {
	return filepath.Join(p.layout.VolumeDevicesDir(p.pod), Dir, p.volume)
}

// record is the pod's record.
func (p place) record() string {
	if p.block {
		return filepath.Join(p.blockData(), string(p.pod)+".json")
	}
	return filepath.Join(p.dir(), recordFile)
}

// target is the path at which the volume is published for the pod.
func (p place) target() string {
	if p.block {
		return filepath.Join(p.shared(), "volumeDevices", "publish", p.volume, string(p.pod))
	}
	return filepath.Join(p.dir(), "mount")
}

func (p place) blockData() string {
	return filepath.Join(p.shared(), "volumeDevices", p.volume, "data")
}

// staging is the path at which the volume is staged for all pods.
func (p place) staging(driver, handle string) string {
	if p.block {
		return filepath.Join(p.shared(), "volumeDevices", "staging", p.volume)
	}
	return filepath.Join(p.shared(), driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))), "globalmount")
}

// stagingRecord is the node's record.
func (p place) stagingRecord(driver, handle string) string {
	if p.block {
		return filepath.Join(p.blockData(), recordFile)
	}
	return filepath.Join(filepath.Dir(p.staging(driver, handle)), recordFile)
}
