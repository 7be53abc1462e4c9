// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/kindred-project/kindred/internal/loop"
	"github.com/kindred-project/kindred/internal/mounts"
)

// Remove removes the content of the directory, then the directory itself, if possible (it may be a
// mount point), and releases the lock. Nothing may run there.
//
// The files that mark the directory are removed last, so that an interrupted removal can be
// repeated.
func (k *Lock) Remove() error {
	l := k.layout
	// Volumes may still be mounted, of pods that were deleted or whose agent does not run.
	if err := mounts.DetachBelow(l.Root); err != nil {
		return l.wrap(err)
	}
	// So may files of block volumes be attached.
	if err := loop.DetachBelow(l.Root); err != nil {
		return l.wrap(err)
	}
	entries, err := os.ReadDir(l.Root)
	if err != nil {
		return l.wrap(err)
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
		return l.wrap(err)
	}
	for _, path := range last {
		if err := os.RemoveAll(path); err != nil {
			return l.wrap(err)
		}
	}
	err = os.Remove(l.Root)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, os.ErrPermission) {
		err = nil
	}
	return errors.Join(err, k.Release())
}
