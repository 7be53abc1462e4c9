// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import v1 "k8s.io/api/core/v1"

// mountStatuses copies the container's mounts. Only read-only mounts have a recursive mode (KEP-3857). The mounts of a run
// do not change, even if the runtime learns to make them read-only recursively.
func (d *decision) mountStatuses(c *v1.Container, old *v1.ContainerStatus, id string) []v1.VolumeMountStatus {
	if old != nil && id != "" && old.ContainerID == id && old.VolumeMounts != nil {
		return old.VolumeMounts
	}
	var statuses []v1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			s.RecursiveReadOnly = new(v1.RecursiveReadOnlyDisabled)
			if d.RecursiveReadOnly && isRecursive(m) {
				s.RecursiveReadOnly = new(v1.RecursiveReadOnlyEnabled)
			}
		}
		statuses = append(statuses, s)
	}
	return statuses
}

// wantsRecursiveReadOnly reports whether a mount of the pod is to be read-only recursively.
func wantsRecursiveReadOnly(pod *v1.Pod) bool {
	var all []v1.VolumeMount
	for i := range pod.Spec.InitContainers {
		all = append(all, pod.Spec.InitContainers[i].VolumeMounts...)
	}
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].VolumeMounts...)
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, pod.Spec.EphemeralContainers[i].VolumeMounts...)
	}
	for i := range all {
		if isRecursive(&all[i]) {
			return true
		}
	}
	return false
}

// isRecursive reports whether a mount is read-only recursively, if the runtime supports that.
func isRecursive(m *v1.VolumeMount) bool {
	return m.ReadOnly && m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled &&
		(m.MountPropagation == nil || *m.MountPropagation == v1.MountPropagationNone)
}
