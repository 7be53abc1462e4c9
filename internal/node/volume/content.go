// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// contentVolume is a volume whose content comes from the API. It is read-only for containers.
type contentVolume struct {
	manager *Manager
	pod     *v1.Pod
	name    string
	dir     string
	memory  bool // on tmpfs
	collect collector
}

// collector returns the current content of a volume, and the latest time for the next refresh (zero: only
// after a change of an object).
type collector func(ctx context.Context) (content payload, again time.Time, err error)

// inMemory keeps the volume's content in memory, because secrets must not be on disk.
func inMemory(v volume) volume {
	v.(*contentVolume).memory = true
	return v
}

func (v *contentVolume) path() string   { return v.dir }
func (v *contentVolume) readOnly() bool { return true }

func (v *contentVolume) prepare(ctx context.Context) (time.Time, error) {
	content, again, err := v.collect(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if err := v.make(); err != nil {
		return time.Time{}, err
	}
	writer := atomicWriter{dir: v.dir, clock: v.manager.options.Clock, own: v.own}
	return again, writer.write(content)
}

func (v *contentVolume) make() error {
	if _, err := os.Lstat(v.dir); err != nil {
		if err := makeDir(v.dir); err != nil {
			return err
		}
	}
	if v.memory {
		if err := mountTmpfs(v.dir, v.manager.nodeMemory()); err != nil {
			return err
		}
	}
	if group := fsGroup(v.pod); group != nil && !hasGroup(v.dir, *group) {
		if err := setGroup(v.dir, *group, true); err != nil {
			return err
		}
	}
	// The volume is read-only in the container, so that the runtime could not create these itself.
	for _, point := range nestedMountPoints(v.pod, v.name) {
		if err := os.MkdirAll(filepath.Join(v.dir, point), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (v *contentVolume) own(dir string) error {
	group := fsGroup(v.pod)
	if group == nil {
		return nil
	}
	return setGroupTree(dir, *group, true)
}

// nestedMountPoints returns the directories, relative to the volume, where containers mount other
// volumes inside this one. It omits mount points inside another nested mount, because they are in
// that mount's volume.
func nestedMountPoints(pod *v1.Pod, name string) []string {
	var out []string
	for _, container := range containers(pod) {
		var all []string
		for _, mount := range container.VolumeMounts {
			all = append(all, filepath.Clean("/"+mount.MountPath)+"/")
		}
		slices.Sort(all)
		for _, mount := range container.VolumeMounts {
			if mount.Name != name {
				continue
			}
			out = append(out, directlyBelow(filepath.Clean("/"+mount.MountPath)+"/", all)...)
		}
	}
	return out
}

// directlyBelow returns, relative to base, the sorted paths that are inside base and not inside another
// of them. All paths end with a slash.
func directlyBelow(base string, sorted []string) []string {
	var out []string
	last := ""
	for _, path := range sorted {
		if path == base || !strings.HasPrefix(path, base) || (last != "" && strings.HasPrefix(path, last)) {
			continue
		}
		last = path
		out = append(out, strings.TrimPrefix(path, base))
	}
	return out
}

// defaultMode is the API's default mode of files.
const defaultMode = 0o644

func modeOf(own, volumes *int32) os.FileMode {
	switch {
	case own != nil:
		return os.FileMode(*own)
	case volumes != nil:
		return os.FileMode(*volumes)
	}
	return defaultMode
}

// project returns the files of a ConfigMap or Secret: one for each key, or those in items.
func project(data map[string][]byte, items []v1.KeyToPath, mode *int32, optional bool, missingKey func(key string) error) (payload, error) {
	out := payload{}
	if len(items) == 0 {
		for key, value := range data {
			out[key] = file{data: value, mode: modeOf(nil, mode)}
		}
		return out, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		switch {
		case ok:
			out[item.Path] = file{data: value, mode: modeOf(item.Mode, mode)}
		case !optional:
			return nil, missingKey(item.Key)
		}
	}
	return out, nil
}
