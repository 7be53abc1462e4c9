// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kindred-project/kindred/internal/durable"
)

// etcd creates its log before it writes the entry that makes it a member of its own cluster. A
// crash between the two leaves a store that waits for an election without candidates. So the
// first start of a store is marked until the store is ready. A store with the mark has never
// acknowledged a write, and is discarded.

// memberDir is the directory of etcd's files.
func memberDir(dir string) string { return filepath.Join(dir, "member") }

func birthMark(dir string) string { return filepath.Join(dir, "first-start") }

// beginBirth marks a new store in dir as not ready yet, and discards one that has the mark.
func beginBirth(dir string) error {
	unfinished, err := exists(birthMark(dir))
	if err != nil {
		return err
	}
	if unfinished {
		if err := os.RemoveAll(memberDir(dir)); err != nil {
			return fmt.Errorf("remove a store that was never ready: %w", err)
		}
		return nil
	}
	if old, err := exists(memberDir(dir)); old || err != nil {
		return err
	}
	return durable.WriteFile(birthMark(dir), nil, 0o600)
}

// endBirth removes the mark, also from the disk, before anything is acknowledged.
func endBirth(dir string) error {
	return durable.Remove(birthMark(dir))
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
