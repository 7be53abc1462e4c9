// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mounts detaches the mounts in a directory before the directory is removed.
//
// A removal that follows a mount deletes the mounted files: with a hostPath volume, the user's. Therefore
// these functions succeed only if the kernel's mount table has no mount there any more, whatever the
// unmount calls returned.
//
// Mounts are detached lazily (MNT_DETACH): a busy mount disappears from the directory at once and is
// released with its last user.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
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

func detach(dir string, by filter) error {
	points, err := find(dir, by)
	if err != nil || len(points) == 0 {
		return err
	}
	for _, point := range slices.Backward(points) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
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
