// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"os"
	"path/filepath"
)

// durability says what a file must survive.
type durability bool

const (
	// durable files are synced: losing one would cut off clients.
	durable durability = true
	// cached files can be made again: a crash may lose them, never tear them.
	cached durability = false
)

// writeFile replaces a file, readable by its owner alone, in one step: a reader
// sees the old content or the new, never a part.
func writeFile(path string, data []byte, d durability) (err error) {
	dir := filepath.Dir(path)
	// os.CreateTemp creates with mode 0600.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := fill(f, data, d); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if d == durable {
		return syncDir(dir)
	}
	return nil
}

// fill writes data to f and closes it.
func fill(f *os.File, data []byte, d durability) error {
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	if d == durable {
		if err := f.Sync(); err != nil {
			_ = f.Close()
			return err
		}
	}
	return f.Close()
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
