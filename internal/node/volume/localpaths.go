// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import v1 "k8s.io/api/core/v1"

// LocalPaths returns the directories of a pod's volumes that have the pod's lifetime and are on the node's own disk or in
// its memory, by the names of the volumes: emptyDirs, and those with content of the API.
func (m *Manager) LocalPaths(pod *v1.Pod) map[string]string {
	paths := map[string]string{}
	for i := range pod.Spec.Volumes {
		spec := &pod.Spec.Volumes[i]
		s := &spec.VolumeSource
		if s.EmptyDir == nil && s.ConfigMap == nil && s.Secret == nil && s.DownwardAPI == nil && s.Projected == nil {
			continue
		}
		if v, err := m.open(pod, spec); err == nil {
			paths[spec.Name] = v.path()
		}
	}
	return paths
}
