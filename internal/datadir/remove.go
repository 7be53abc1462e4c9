// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Remove removes all that is in the directory and then the directory itself, if it
// can be (it may be a mount point), and gives it up. Nothing may run there any more.
//
// The files that make it ours go last, so that a removal which was interrupted can
// be done again.
func (k *Lock) Remove() error {
	l := k.layout
	if err := unmountBelow(l.Root); err != nil {
		return l.refuse(err)
	}
	entries, err := os.ReadDir(l.Root)
	if err != nil {
		return l.refuse(err)
	}
	last := []string{l.instanceFile(), l.versionFile(), l.lockFile()}
	for _, entry := range entries {
		path := l.path(entry.Name())
		if entry.Name() == "lost+found" || slices.Contains(last, path) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return l.refuse(err)
	}
	for _, path := range last {
		if err := os.RemoveAll(path); err != nil {
			return l.refuse(err)
		}
	}
	err = os.Remove(l.Root)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, os.ErrPermission) {
		err = nil
	}
	return errors.Join(err, k.Release())
}

// unmountBelow detaches what is mounted below a directory: volumes of pods that are
// gone, or whose agent is.
func unmountBelow(dir string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range mountsBelow(string(table), resolve(dir)) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("cannot unmount %s: %w", point, err)
		}
	}
	return nil
}

// mountsBelow finds the mount points below a directory in a table in the format of
// proc_pid_mountinfo(5), the last mounted first.
func mountsBelow(table, dir string) []string {
	var points []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape(fields[4]); strings.HasPrefix(point, filepath.Clean(dir)+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// unescape undoes the octal escapes which the kernel writes for white space and
// backslashes.
func unescape(path string) string {
	parts := strings.Split(path, `\`)
	for i, part := range parts[1:] {
		if len(part) < 3 {
			continue
		}
		if code, err := strconv.ParseUint(part[:3], 8, 8); err == nil {
			parts[i+1] = string([]byte{byte(code)}) + part[3:]
		}
	}
	return strings.Join(parts, "")
}
