// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/mounts"
)

// The directories of volumes whose data outlives the pod.
const (
	localDir = "kubernetes.io~local-volume"
	nfsDir   = "kubernetes.io~nfs"
)

// dataKinds are the kinds of volumes whose data outlives the pod. They are never unmounted lazily, and
// their directories are removed only when they are empty (rmdir(2)).
var dataKinds = []string{localDir, nfsDir}

// mountData mounts a data volume at a directory of a pod, unless it is mounted.
func (m *Manager) mountData(dir, source, fsType string, options []string) error {
	mounted, err := mountinfo.Mounted(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if mounted {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	err = m.mounter.MountSensitiveWithoutSystemd(source, dir, fsType, options, nil)
	if err == nil {
		return nil
	}
	// A bind mount with options is two mounts: the second may fail.
	return errors.Join(err, unmountData(dir))
}

// unmountData unmounts a directory and removes it. It fails if a mount is in use or if there are files in the
// directory.
func unmountData(dir string) error {
	if err := mounts.UnmountAt(dir); err != nil {
		return err
	}
	return removeEmpty(dir)
}

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// teardownData tears down all data volumes of a pod.
func (m *Manager) teardownData(ctx context.Context, uid types.UID) error {
	layout := m.options.Layout
	return errors.Join(
		m.teardownCSI(ctx, uid),
		eachEntry(filepath.Join(layout.VolumeDevicesDir(uid), localDir), func(name string) error { return m.teardownLocalBlock(uid, name) }),
		removeEmpty(layout.VolumeDevicesDir(uid)),
		eachEntry(filepath.Join(layout.VolumesDir(uid), localDir), func(name string) error { return m.teardownLocal(uid, name) }),
		eachEntry(filepath.Join(layout.VolumesDir(uid), nfsDir), func(name string) error {
			return unmountData(filepath.Join(layout.VolumesDir(uid), nfsDir, name))
		}),
	)
}

// eachEntry tears down each volume in a directory, and removes the directory.
func eachEntry(dir string, teardown func(name string) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if err := teardown(entry.Name()); err != nil {
			errs = append(errs, fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", entry.Name(), err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return removeEmpty(dir)
}

// ownData gives the files of a volume to the pod's fsGroup.
func ownData(pod *v1.Pod, dir string) error {
	group := fsGroup(pod)
	if group == nil {
		return nil
	}
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	if policy != nil && *policy == v1.FSGroupChangeOnRootMismatch && isOwned(dir, *group) {
		return nil
	}
	return setGroupTree(dir, *group, false)
}

// isOwned reports whether setGroupTree has completed for the directory, which it changes last.
func isOwned(dir string, group int64) bool {
	info, err := os.Stat(dir)
	return err == nil && hasGroup(dir, group) && info.Mode().Perm()&0o770 == 0o770
}
