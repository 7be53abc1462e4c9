// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localvolumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Volume is what the disk of a machine has of a PersistentVolume.
type Volume struct {
	// Name is that of the PersistentVolume.
	Name string `json:"name"`
	// Path is what the PersistentVolume says of the place. It is not trusted.
	Path string `json:"path,omitempty"`
	// Block is set if the volume is a file, which the node makes a block device.
	Block bool `json:"block,omitempty"`
	// Size is in bytes.
	Size int64 `json:"size,omitempty"`
}

// Of returns the volume of a PersistentVolume.
func Of(v *corev1.PersistentVolume) Volume {
	volume := Volume{Name: v.Name, Block: IsBlock(&v.Spec), Size: v.Spec.Capacity.Storage().Value()}
	if v.Spec.Local != nil {
		volume.Path = v.Spec.Local.Path
	}
	return volume
}

// IsBlock reports whether a volume is a block device.
func IsBlock(spec *corev1.PersistentVolumeSpec) bool {
	return ptr.Deref(spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

// Made is the result of Make.
type Made struct {
	// Path is the directory or file.
	Path string `json:"path"`
	// Limited is set if the volume cannot become larger than its size.
	Limited bool `json:"limited,omitempty"`
}

// Disk has the volumes of one machine. Each step can be repeated.
type Disk interface {
	// Make makes the directory or file of a volume. It is marked until Keep is called, because the process may end before the
	// PersistentVolume is created.
	Make(ctx context.Context, v Volume) (Made, error)
	// Keep removes the mark of a volume.
	Keep(ctx context.Context, name string) error
	// Expand makes room for the size of the volume.
	Expand(ctx context.Context, v Volume) error
	// Remove removes a volume. It fails while the volume is in use.
	Remove(ctx context.Context, v Volume) error
	// Sweep removes marked directories without data, except those of volumes that exist or that claims want.
	Sweep(ctx context.Context, exist, wanted []string) error
}
