// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func (c *specChecker) volumeMounts(container *v1.Container, path *field.Path) {
	paths := sets.Set[string]{}
	for i := range container.VolumeMounts {
		mount, at := &container.VolumeMounts[i], path.Index(i)
		c.NonEmpty(at.Child("name"), mount.Name)
		if c.volumes[mount.Name] == nil {
			c.Add(field.NotFound(at.Child("name"), mount.Name))
		}
		c.NonEmpty(at.Child("mountPath"), mount.MountPath)
		requireUnique(c.Checker, at.Child("mountPath"), paths, mount.MountPath)
		validateNotDevice(c.Checker, mount, container.VolumeDevices, at)
		validateSubPath(c.Checker, mount, path, at)
		validateMountPropagation(c.Checker, mount, container, path.Child("mountPropagation"))
		validateRecursiveReadOnly(c.Checker, mount, path.Child("recursiveReadOnly"))
	}
}

// validateNotDevice forbids that a container uses a volume both as a directory and as a device.
func validateNotDevice(c *check.Checker, mount *v1.VolumeMount, devices []v1.VolumeDevice, path *field.Path) {
	sameName, samePath := false, false
	for name, devicePath := range lastPaths(devices, func(d v1.VolumeDevice) (string, string) { return d.Name, d.DevicePath }) {
		sameName = sameName || name == mount.Name
		samePath = samePath || devicePath == mount.MountPath
	}
	if sameName {
		c.Invalid(path.Child("name"), mount.Name, "must not already exist in volumeDevices")
	}
	if samePath {
		c.Invalid(path.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices")
	}
}

// lastPaths returns the paths by name. The last path of a name wins.
func lastPaths[T any](list []T, of func(T) (name, path string)) map[string]string {
	paths := make(map[string]string, len(list))
	for _, item := range list {
		name, path := of(item)
		paths[name] = path
	}
	return paths
}

func validateSubPath(c *check.Checker, mount *v1.VolumeMount, path, at *field.Path) {
	if mount.SubPath != "" {
		c.RelativePath(path.Child("subPath"), mount.SubPath)
	}
	if mount.SubPathExpr == "" {
		return
	}
	if mount.SubPath != "" {
		c.Invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
	}
	c.RelativePath(path.Child("subPathExpr"), mount.SubPathExpr)
}

func validateMountPropagation(c *check.Checker, mount *v1.VolumeMount, container *v1.Container, path *field.Path) {
	if mount.MountPropagation == nil {
		return
	}
	check.OneOf(c, path, *mount.MountPropagation,
		v1.MountPropagationBidirectional, v1.MountPropagationHostToContainer, v1.MountPropagationNone)
	if *mount.MountPropagation == v1.MountPropagationBidirectional && !isPrivileged(container.SecurityContext) {
		c.Forbidden(path, "Bidirectional mount propagation is available only to privileged containers")
	}
}

func isPrivileged(security *v1.SecurityContext) bool {
	return security != nil && security.Privileged != nil && *security.Privileged
}

func validateRecursiveReadOnly(c *check.Checker, mount *v1.VolumeMount, path *field.Path) {
	if mount.RecursiveReadOnly == nil {
		return
	}
	switch *mount.RecursiveReadOnly {
	case v1.RecursiveReadOnlyDisabled:
	case v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible:
		if !mount.ReadOnly {
			c.Forbidden(path, "may only be specified when readOnly is true")
		}
		if mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone {
			c.Forbidden(path, "may only be specified when mountPropagation is None or not specified")
		}
	default:
		check.OneOf(c, path, *mount.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible)
	}
}

// volumeDevices checks raw block devices, which only claims can provide.
func (c *specChecker) volumeDevices(container *v1.Container, path *field.Path) {
	mounts := lastPaths(container.VolumeMounts, func(m v1.VolumeMount) (string, string) { return m.Name, m.MountPath })
	mountPaths := sets.Set[string]{}
	for _, mountPath := range mounts {
		mountPaths.Insert(mountPath)
	}
	names, paths := sets.Set[string]{}, sets.Set[string]{}
	for i, device := range container.VolumeDevices {
		at := path.Index(i)
		if c.NonEmpty(at.Child("name"), device.Name) {
			requireUnique(c.Checker, at.Child("name"), names, device.Name)
		}
		switch volume := c.volumes[device.Name]; {
		case volume == nil:
			c.Add(field.NotFound(at.Child("name"), device.Name))
		case volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil:
			c.Invalid(at.Child("name"), device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		c.NonEmpty(at.Child("devicePath"), device.DevicePath)
		if check.HasBacksteps(device.DevicePath) {
			c.Invalid(at.Child("devicePath"), device.DevicePath, "can not contain backsteps ('..')")
		} else {
			requireUnique(c.Checker, at.Child("devicePath"), paths, device.DevicePath)
		}
		if _, found := mounts[device.Name]; found {
			c.Invalid(at.Child("name"), device.Name, "must not already exist in volumeMounts")
		}
		if mountPaths.Has(device.DevicePath) {
			c.Invalid(at.Child("devicePath"), device.DevicePath, "must not already exist as a path in volumeMounts")
		}
	}
}

// requireUnique reports a repeated value as invalid rather than as a duplicate.
func requireUnique(c *check.Checker, path *field.Path, seen sets.Set[string], value string) {
	if seen.Has(value) {
		c.Invalid(path, value, "must be unique")
	}
	seen.Insert(value)
}
