// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
)

// volume is one volume of one pod.
type volume interface {
	// path returns the path that is mounted into containers.
	path() string
	// readOnly reports whether all mounts of the volume are read-only.
	readOnly() bool
	// prepare makes the volume present. It is idempotent: a second call refreshes content from the
	// API. again is the latest time for the next refresh, or zero if only a change requires one.
	prepare(ctx context.Context) (again time.Time, err error)
}

// attachable is a volume that another part of the cluster attaches to the node before it can be prepared.
type attachable interface {
	attach(ctx context.Context, deadline time.Time) error
}

// The directories of upstream's kubelet, which backup and debugging tools know.
const (
	emptyDirDir    = "kubernetes.io~empty-dir"
	configMapDir   = "kubernetes.io~configmap"
	secretDir      = "kubernetes.io~secret"
	downwardAPIDir = "kubernetes.io~downward-api"
	projectedDir   = "kubernetes.io~projected"
)

// open returns the volume that a pod declares, without any change on disk.
func (m *Manager) open(pod *v1.Pod, spec *v1.Volume) (volume, error) {
	if claimOf(pod, spec) != "" {
		return m.openBound(pod, spec)
	}
	dir := func(kind string) string {
		return filepath.Join(m.options.Layout.VolumesDir(pod.UID), kind, spec.Name)
	}
	content := func(kind string, collect collector) volume {
		return &contentVolume{manager: m, pod: pod, name: spec.Name, dir: dir(kind), collect: collect}
	}
	source := &spec.VolumeSource
	switch {
	case source.EmptyDir != nil:
		return m.emptyDir(pod, source.EmptyDir, dir(emptyDirDir)), nil
	case source.HostPath != nil:
		return &hostPath{source: source.HostPath}, nil
	case source.ConfigMap != nil:
		return content(configMapDir, m.configMap(pod, source.ConfigMap)), nil
	case source.DownwardAPI != nil:
		return content(downwardAPIDir, m.downwardAPI(pod, source.DownwardAPI)), nil
	case source.Secret != nil:
		return inMemory(content(secretDir, m.secret(pod, source.Secret))), nil
	case source.Projected != nil:
		return inMemory(content(projectedDir, m.projected(pod, spec.Name, source.Projected))), nil
	case source.Image != nil:
		return image{}, m.options.NoImages
	case source.CSI != nil && m.csi != nil:
		return m.csiVolume(m.csiOf(pod, spec)), nil
	case source.NFS != nil:
		return m.nfs(pod, spec.Name, source.NFS, false, nil), nil
	}
	return nil, unsupported(spec.Name, source)
}

// find returns the pod's volume with this name, or nil.
func find(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// used returns the names of the volumes that the pod's containers mount or read, and of those that they get as
// devices.
func used(pod *v1.Pod) (mounted, mapped map[string]bool) {
	mounted, mapped = map[string]bool{}, map[string]bool{}
	for _, container := range containers(pod) {
		for _, mount := range container.VolumeMounts {
			mounted[mount.Name] = true
		}
		for _, device := range container.VolumeDevices {
			mapped[device.Name] = true
		}
		for _, variable := range container.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.FileKeyRef != nil {
				mounted[variable.ValueFrom.FileKeyRef.VolumeName] = true
			}
		}
	}
	return mounted, mapped
}

// makeDir creates a volume's directory, which every user may use, below parents that only the agent may
// enter.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil || info.Mode().Perm() == 0o777 {
		return err
	}
	return os.Chmod(dir, 0o777) // the umask cleared bits
}
