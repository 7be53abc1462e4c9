// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// The operations in metrics, as upstream's kubelet names them.
const (
	opAttached    = "verify_controller_attached_volume"
	opMount       = "volume_mount"
	opMap         = "map_volume"
	opUnmount     = "volume_unmount"
	opUnmap       = "unmap_volume"
	unknownPlugin = "N/A"
)

// pluginOf returns the name of upstream's plugin for a volume. That of a claim is known once the claim is resolved.
func (m *Manager) pluginOf(pod *v1.Pod, spec *v1.Volume) string {
	source := &spec.VolumeSource
	if claimOf(pod, spec) != "" {
		return m.pluginOfClaim(pod, spec)
	}
	switch {
	case source.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case source.HostPath != nil:
		return "kubernetes.io/host-path"
	case source.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case source.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case source.Secret != nil:
		return "kubernetes.io/secret"
	case source.Projected != nil:
		return "kubernetes.io/projected"
	case source.Image != nil:
		return "kubernetes.io/image"
	case source.NFS != nil:
		return "kubernetes.io/nfs"
	case source.CSI != nil:
		return "kubernetes.io/csi:" + source.CSI.Driver
	}
	return unknownPlugin
}

func (m *Manager) pluginOfClaim(pod *v1.Pod, spec *v1.Volume) string {
	m.mu.Lock()
	state := m.pods[pod.UID]
	m.mu.Unlock()
	if state == nil {
		return unknownPlugin
	}
	b, ok := state.boundTo(spec.Name)
	if !ok {
		return unknownPlugin
	}
	source := &b.pv.Spec.PersistentVolumeSource
	switch {
	case source.HostPath != nil:
		return "kubernetes.io/host-path"
	case source.Local != nil:
		return "kubernetes.io/local-volume"
	case source.NFS != nil:
		return "kubernetes.io/nfs"
	case source.CSI != nil:
		return "kubernetes.io/csi:" + source.CSI.Driver
	}
	return unknownPlugin
}

// measured runs an operation on a volume and reports it to the options' Observe.
func (m *Manager) measured(pod *v1.Pod, spec *v1.Volume, operation string, run func() error) error {
	begin := m.options.Clock.Now()
	err := run()
	m.observe(m.pluginOf(pod, spec), operation, m.options.Clock.Since(begin), err)
	return err
}

func (m *Manager) observe(plugin, operation string, took time.Duration, err error) {
	if m.options.Observe != nil {
		m.options.Observe(plugin, operation, took, err)
	}
}

// usedVolume is a volume that containers of a pod use.
type usedVolume struct {
	plugin string
	block  bool
}

// removal returns the operation that removes it. A pod's volumes are removed together.
func (v usedVolume) removal() string {
	if v.block {
		return opUnmap
	}
	return opUnmount
}

// volumesOf returns the volumes of a pod that its containers use.
func (m *Manager) volumesOf(pod *v1.Pod) []usedVolume {
	mounted, mapped := used(pod)
	var all []usedVolume
	for i := range pod.Spec.Volumes {
		spec := &pod.Spec.Volumes[i]
		if mounted[spec.Name] || mapped[spec.Name] {
			all = append(all, usedVolume{m.pluginOf(pod, spec), mapped[spec.Name]})
		}
	}
	return all
}

// Count adds the volumes of a pod that is to run to wanted, by plugin, and those that are present to mounted.
func (m *Manager) Count(pod *v1.Pod, wanted, mounted map[string]int) {
	m.mu.Lock()
	state := m.pods[pod.UID]
	m.mu.Unlock()
	present := state != nil && state.isPrepared()
	for _, v := range m.volumesOf(pod) {
		wanted[v.plugin]++
		if present {
			mounted[v.plugin]++
		}
	}
}
