// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/kindred-project/kindred/internal/mounts"
)

// Remove removes all that is in the directory and then the directory itself, if it
// can be (it may be a mount point), and gives it up. Nothing may run there any more.
//
// The files that make it ours go last, so that a removal which was interrupted can
// be done again.
func (k *Lock) Remove() error {
	l := k.layout
	// Volumes of pods may be mounted still: of pods that are gone, or whose agent is.
	if err := mounts.DetachBelow(l.Root); err != nil {
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
