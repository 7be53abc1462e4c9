// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localvolumes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/sets"
)

// markSuffix is the end of the name of a mark: a file beside the directory of a volume that is yet to be created.
// A directory without a mark belongs to a volume or to one that was retained, and is not swept.
const markSuffix = ".new"

func (d Directories) markOf(name string) string { return filepath.Join(d.Root, name+markSuffix) }

// mark marks the directory of a volume before it is made.
func (d Directories) mark(name string) error {
	if _, err := os.Lstat(filepath.Join(d.Root, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(d.markOf(name), nil, blockMode)
}

// Keep implements Disk.
func (d Directories) Keep(_ context.Context, name string) error { return d.unmark(name) }

func (d Directories) unmark(name string) error {
	if err := os.Remove(d.markOf(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep implements Disk.
func (d Directories) Sweep(_ context.Context, exist, wanted []string) error {
	made, claimed := sets.New(exist...), sets.New(wanted...)
	entries, err := os.ReadDir(d.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var failed []error
	for _, entry := range entries {
		name, marked := strings.CutSuffix(entry.Name(), markSuffix)
		if !marked || !made.Has(name) && claimed.Has(name) {
			continue
		}
		if !made.Has(name) {
			d.removeUnwritten(name)
		}
		failed = append(failed, d.unmark(name))
	}
	return errors.Join(failed...)
}

// removeUnwritten removes the directory of a volume if it is empty or has the file of a block volume to which
// nothing was written.
func (d Directories) removeUnwritten(name string) {
	path := filepath.Join(d.Root, name)
	if info, err := os.Lstat(filepath.Join(path, blockName)); err == nil && !hasData(info) {
		_ = os.Remove(filepath.Join(path, blockName))
	}
	_ = os.Remove(path) // This fails if the directory is not empty.
}

// hasData reports whether a file takes room on the disk.
func hasData(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || !info.Mode().IsRegular() || stat.Blocks > 0
}
