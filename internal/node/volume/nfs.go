// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
)

// nfs is a directory of an NFS server, mounted for each pod.
type nfs struct {
	manager  *Manager
	dir      string
	source   *v1.NFSVolumeSource
	onlyRead bool
	options  []string
}

func (m *Manager) nfs(pod *v1.Pod, name string, source *v1.NFSVolumeSource, readOnly bool, options []string) *nfs {
	return &nfs{
		manager: m, dir: filepath.Join(m.options.Layout.VolumesDir(pod.UID), nfsDir, name),
		source: source, onlyRead: readOnly || source.ReadOnly, options: options,
	}
}

func (v *nfs) path() string   { return v.dir }
func (v *nfs) readOnly() bool { return v.onlyRead }

func (v *nfs) prepare(context.Context) (time.Time, error) {
	if err := needHelper("nfs", "nfs-common (Debian) or nfs-utils (Fedora)"); err != nil {
		return time.Time{}, err
	}
	options := v.options
	if v.onlyRead {
		options = append([]string{"ro"}, options...)
	}
	return time.Time{}, v.manager.mountData(v.dir, v.source.Server+":"+v.source.Path, "nfs", joinOptions(options...))
}

// helperDirs are where mount(8) looks for the helpers of file systems.
var helperDirs = []string{"/sbin", "/sbin/fs.d", "/sbin/fs", "/usr/sbin"}

// needHelper returns an error if the node cannot mount a file system of the type.
func needHelper(fsType, packages string) error {
	for _, dir := range helperDirs {
		if _, err := os.Stat(filepath.Join(dir, "mount."+fsType)); err == nil {
			return nil
		}
	}
	return errors.New("the node has no mount." + fsType + ": install " + packages)
}
