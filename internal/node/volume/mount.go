// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/environment"
)

// Mounts implements pod.Volumes.
func (m *Manager) Mounts(ctx context.Context, pod *v1.Pod, container *v1.Container, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error) {
	mounts := make([]*runtimeapi.Mount, 0, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		mount, err := m.mount(ctx, pod, container, i, env)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func (m *Manager) mount(ctx context.Context, pod *v1.Pod, container *v1.Container, index int, env []*runtimeapi.KeyValue) (*runtimeapi.Mount, error) {
	want := &container.VolumeMounts[index]
	spec := find(pod, want.Name)
	if spec == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", want.Name, container.Name)
	}
	v, err := m.open(pod, spec)
	if err != nil {
		return nil, err
	}
	subPath, err := subPathOf(want, env)
	if err != nil {
		return nil, err
	}
	propagation, err := propagationOf(want)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(want, func() bool { return m.canRecursiveReadOnly(pod) })
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	mount := &runtimeapi.Mount{
		ContainerPath:     absolute(want.MountPath),
		Readonly:          want.ReadOnly || v.readOnly(),
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
	}
	if mount.Image = m.imageSpec(pod, spec.Image); mount.Image != nil {
		mount.ImageSubPath = subPath
		return mount, nil
	}
	mount.HostPath, mount.SelinuxRelabel = v.path(), m.mustRelabel(pod, spec, v)
	if subPath != "" {
		s := subpath{
			root: mount.HostPath, path: subPath,
			target: m.subpathTarget(pod.UID, want.Name, container.Name, index),
		}
		if mount.HostPath, err = s.bind(); err != nil {
			// The error would disclose paths of the node.
			klog.FromContext(ctx).Error(err, "Cannot mount subPath", "pod", klog.KObj(pod), "container", container.Name, "volume", want.Name)
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", want.Name, container.Name)
		}
	}
	return mount, nil
}

// Devices implements pod.Volumes.
func (m *Manager) Devices(pod *v1.Pod, container *v1.Container) ([]*runtimeapi.Device, error) {
	var devices []*runtimeapi.Device
	for _, want := range container.VolumeDevices {
		device, err := m.device(pod, container, want)
		if err != nil {
			return nil, err
		}
		devices = append(devices, device)
	}
	return devices, nil
}

func (m *Manager) device(pod *v1.Pod, container *v1.Container, want v1.VolumeDevice) (*runtimeapi.Device, error) {
	if !path.IsAbs(want.DevicePath) {
		return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", want.DevicePath)
	}
	missing := fmt.Errorf("cannot find volume %q to pass into container %q", want.Name, container.Name)
	spec := find(pod, want.Name)
	if spec == nil {
		return nil, missing
	}
	v, err := m.open(pod, spec)
	if err != nil {
		return nil, err
	}
	block, ok := v.(blockVolume)
	if !ok {
		return nil, missing
	}
	device := &runtimeapi.Device{ContainerPath: want.DevicePath, Permissions: "mrw"}
	if block.readOnly() {
		device.Permissions = "r"
	}
	device.HostPath, err = block.device()
	return device, err
}

func absolute(containerPath string) string {
	if strings.HasPrefix(containerPath, "/") {
		return containerPath
	}
	return "/" + containerPath
}

// subPathOf returns the path inside the volume to mount, or "" for the whole volume.
func subPathOf(mount *v1.VolumeMount, env []*runtimeapi.KeyValue) (string, error) {
	subPath := mount.SubPath
	if mount.SubPathExpr != "" {
		var err error
		if subPath, err = expandAll(mount.SubPathExpr, env); err != nil {
			return "", err
		}
	}
	switch {
	case path.IsAbs(subPath):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
	case slices.Contains(strings.Split(subPath, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", subPath)
	}
	return subPath, nil
}

// expandAll expands an expression. It fails if a variable has no value.
func expandAll(expression string, env []*runtimeapi.KeyValue) (string, error) {
	values := make(map[string]string, len(env))
	for _, pair := range env {
		values[pair.Key] = string(pair.Value)
	}
	missing := map[string]bool{}
	expanded := environment.Expand(expression, func(name string) (string, bool) {
		if values[name] == "" {
			missing[name] = true
		}
		return values[name], true
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return expanded, nil
}

func propagationOf(mount *v1.VolumeMount) (runtimeapi.MountPropagation, error) {
	if mount.MountPropagation == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mount.MountPropagation {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mount.MountPropagation)
}

func (m *Manager) canRecursiveReadOnly(pod *v1.Pod) bool {
	return m.options.RecursiveReadOnly != nil && m.options.RecursiveReadOnly(pod)
}

// recursiveReadOnly reports whether mounts below the mount are read-only as well (KEP-3857).
func recursiveReadOnly(mount *v1.VolumeMount, supported func() bool) (bool, error) {
	if mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !mount.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", mount.Name)
	}
	if mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q",
			mount.Name, *mount.MountPropagation)
	}
	switch *mount.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return supported(), nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported() {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", mount.Name)
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *mount.RecursiveReadOnly)
}
