// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
)

// volume is one volume of one pod.
type volume interface {
	// path is what is mounted into containers.
	path() string
	// readOnly says that containers may not write, whatever they ask for.
	readOnly() bool
	// prepare makes the volume present. It is idempotent; for kinds whose
	// content comes from the API, doing it again is the refresh. again is when that
	// is due at the latest, or zero when only a change calls for it.
	prepare(ctx context.Context) (again time.Time, err error)
}

// The directories of upstream's kubelet, which backup and debugging tools know.
const (
	emptyDirDir    = "kubernetes.io~empty-dir"
	configMapDir   = "kubernetes.io~configmap"
	secretDir      = "kubernetes.io~secret"
	downwardAPIDir = "kubernetes.io~downward-api"
	projectedDir   = "kubernetes.io~projected"
)

// open returns the volume that a pod declares. It touches nothing.
func (m *Manager) open(pod *v1.Pod, spec *v1.Volume) (volume, error) {
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
	}
	return nil, fmt.Errorf("no volume plugin matched")
}

// find returns the volume of that name which the pod declares, or nil.
func find(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// used returns the names of the volumes that a container of the pod needs.
func used(pod *v1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, container := range containers(pod) {
		for _, mount := range container.VolumeMounts {
			names[mount.Name] = true
		}
		for _, variable := range container.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.FileKeyRef != nil {
				names[variable.ValueFrom.FileKeyRef.VolumeName] = true
			}
		}
	}
	return names
}

// makeDir makes a volume's directory, which every user may use, below parents
// which only the node may enter.
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
	return os.Chmod(dir, 0o777) // the umask took bits away
}
