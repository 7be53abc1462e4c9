// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
)

// mustRelabel reports whether the runtime gives a volume's files the SELinux label of the container. It must for
// files that the node has made, and for volumes that only this pod changes. Runtimes do nothing on a machine
// without SELinux.
func (m *Manager) mustRelabel(pod *v1.Pod, spec *v1.Volume, v volume) bool {
	source := &spec.VolumeSource
	switch {
	case source.EmptyDir != nil, source.ConfigMap != nil, source.Secret != nil, source.DownwardAPI != nil, source.Projected != nil:
		return true
	case source.CSI != nil:
		return !v.readOnly() && hasLabels(v.path())
	}
	b, ok := m.state(pod.UID).boundTo(spec.Name)
	if !ok || v.readOnly() {
		return false
	}
	return b.pv.Spec.Local != nil || b.pv.Spec.CSI != nil && hasLabels(v.path())
}

// hasLabels reports whether the file system that is mounted at a path can store SELinux labels.
func hasLabels(path string) bool {
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	return err == nil && len(found) > 0 && storesLabels(found[len(found)-1])
}

func storesLabels(m *mountinfo.Info) bool {
	options := strings.Split(m.Options+","+m.VFSOptions, ",")
	return slices.Contains(options, "seclabel")
}
