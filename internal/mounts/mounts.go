// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mounts lets go of what is mounted in a directory before the directory is removed.
//
// A removal that walks into a mount deletes what the mount leads to: a user's own
// files, for a hostPath volume. So these functions succeed only when the kernel's table
// shows no mount there any more, whatever the calls that unmount said.
//
// Mounts are detached, not just unmounted: one that is busy vanishes from the
// directory at once and ends with its last user.
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

// At returns the mount points at or below a directory, each after the one that it is
// on top of or below; none if there is no such directory.
func At(dir string) ([]string, error) { return find(dir, mountinfo.PrefixFilter) }

// DetachAt detaches everything mounted at or below a directory.
func DetachAt(dir string) error { return detach(dir, mountinfo.PrefixFilter) }

// DetachBelow detaches everything mounted below a directory, which may be a mount
// point itself and stays one.
func DetachBelow(dir string) error { return detach(dir, below) }

// filter chooses mounts by a directory.
type filter func(dir string) mountinfo.FilterFunc

func below(dir string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, dir+"/"), false
	}
}

func find(dir string, by filter) ([]string, error) {
	// The kernel shows paths without symlinks.
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
		// It may have gone with another.
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
