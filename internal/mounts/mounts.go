// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mounts detaches the mounts in a directory before the directory is removed.
//
// A removal that follows a mount deletes the mounted files: with a hostPath volume, the user's. Therefore
// these functions succeed only if the kernel's mount table has no mount there any more, whatever the
// unmount calls returned.
//
// The Detach functions detach lazily (MNT_DETACH): a busy mount disappears from the directory at once and
// is released with its last user. UnmountAt is for mounts with data that outlives the directory: it fails if
// a mount is busy, so that the storage below is not taken away while a process still writes to it.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// At returns the mount points at or below a directory, each after the mounts that it is on top of or
// below. It returns none if the directory does not exist.
func At(dir string) ([]string, error) { return find(dir, mountinfo.PrefixFilter) }

// DetachAt detaches all mounts at or below a directory.
func DetachAt(dir string) error { return detach(dir, mountinfo.PrefixFilter) }

// DetachBelow detaches all mounts below a directory, but not one at the directory itself.
func DetachBelow(dir string) error { return detach(dir, below) }

// UnmountAt unmounts all mounts at or below a directory. It fails if one of them is in use.
func UnmountAt(dir string) error { return unmount(dir, mountinfo.PrefixFilter, 0) }

// RemoveAll removes a directory and all that is in it. It fails if a mount is at or below the directory.
func RemoveAll(dir string) error {
	points, err := At(dir)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("%s is not removed: still mounted: %s", dir, strings.Join(points, ", "))
	}
	return os.RemoveAll(dir)
}

// filter selects mounts by a directory.
type filter func(dir string) mountinfo.FilterFunc

func below(dir string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	}
}

func find(dir string, by filter) ([]string, error) {
	// The mount table has paths without symlinks.
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(by(real))
	if err != nil {
		return nil, err
	}
	points := make([]string, len(infos))
	for i, info := range infos {
		points[i] = info.Mountpoint
	}
	return points, nil
}

func detach(dir string, by filter) error { return unmount(dir, by, unix.MNT_DETACH) }

func unmount(dir string, by filter, flags int) error {
	points, err := find(dir, by)
	if err != nil || len(points) == 0 {
		return err
	}
	for _, point := range slices.Backward(points) {
		err := unix.Unmount(point, flags|unix.UMOUNT_NOFOLLOW)
		// It may have been detached together with another mount.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cannot unmount %s: %w", point, err)
		}
	}
	points, err = find(dir, by)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("still mounted after unmount: %s", strings.Join(points, ", "))
	}
	return err
}
