// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Prepared is a volume that is present on the node.
type Prepared struct {
	Name, Path string
	// Claim is the name of the PersistentVolumeClaim; empty if there is none.
	Claim string
	// Files is set if the volume consists of files on the node's file system.
	Files bool
	// Local is set if its files are ephemeral storage of the node.
	Local bool
}

// Prepared returns the volumes of a pod whose use can be measured: not those of the host or of images. While the pod's
// volumes are being prepared, there are none.
func (m *Manager) Prepared(uid types.UID) []Prepared {
	m.mu.Lock()
	state := m.pods[uid]
	m.mu.Unlock()
	if state == nil || !state.mu.TryLock() {
		return nil
	}
	defer state.mu.Unlock()
	if state.pod == nil {
		return nil
	}
	mounted, _ := used(state.pod)
	var prepared []Prepared
	for i := range state.pod.Spec.Volumes {
		spec := &state.pod.Spec.Volumes[i]
		if !mounted[spec.Name] || spec.HostPath != nil || spec.Image != nil {
			continue
		}
		v, err := m.open(state.pod, spec)
		if err != nil {
			continue
		}
		prepared = append(prepared, Prepared{
			Name: spec.Name, Path: v.path(), Claim: claimOf(state.pod, spec), Files: hasFiles(spec), Local: isEphemeralStorage(spec),
		})
	}
	return prepared
}

// hasFiles reports whether a volume consists of files that the agent makes.
func hasFiles(v *v1.Volume) bool {
	return v.EmptyDir != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// isEphemeralStorage reports whether a volume counts as ephemeral storage of its pod, as in upstream's kubelet.
func isEphemeralStorage(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium != v1.StorageMediumMemory || v.ConfigMap != nil
}
