// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kindred-project/kindred/internal/durable"
	"github.com/kindred-project/kindred/internal/loop"
	"github.com/kindred-project/kindred/internal/mounts"
)

// Directories are the directories of volumes below a root, on this machine. Only root can enter the root, so that no other
// user of the machine can. Within it, every user of a container may write to its volume.
type Directories struct{ Root string }

const (
	rootMode   = 0o700
	volumeMode = 0o777
	blockMode  = 0o600

	// blockName is the name of the file of a block volume, in the volume's directory.
	blockName = "block"

	// blockUnit is the unit of the size of a block volume, in bytes: that of a page.
	blockUnit = 4096
)

// Make implements Disk.
func (d Directories) Make(_ context.Context, v Volume) (Made, error) {
	if v.Block {
		path, err := d.makeFile(v.Name, v.Size)
		return Made{Path: path, Limited: true}, err
	}
	path, err := d.makeDirectory(v.Name)
	if err != nil {
		return Made{}, err
	}
	limited, err := d.limit(v.Name, v.Size)
	return Made{Path: path, Limited: limited}, err
}

// makeDirectory makes the directory of a volume, if it does not exist, and returns its path. The directory is marked
// until the volume exists.
func (d Directories) makeDirectory(name string) (string, error) {
	path := filepath.Join(d.Root, name)
	if err := durable.MakeDir(d.Root, rootMode); err != nil {
		return "", err
	}
	if err := d.mark(name); err != nil {
		return "", err
	}
	return path, durable.MakeDir(path, volumeMode)
}

// makeFile makes the file of a block volume, and returns its path. The file has holes: it takes room on
// the disk when it is written.
func (d Directories) makeFile(name string, size int64) (string, error) {
	dir, err := d.makeDirectory(name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, blockName)
	return path, resize(path, size)
}

// Expand implements Disk.
func (d Directories) Expand(_ context.Context, v Volume) error {
	if err := d.check(v); err != nil {
		return err
	}
	if v.Block {
		return grow(v)
	}
	return raise(v)
}

// grow enlarges the file of a block volume, and its device if a pod uses it.
func grow(v Volume) error {
	if err := resize(v.Path, v.Size); err != nil {
		return err
	}
	return loop.Grow(v.Path)
}

// resize makes a file at least size bytes large, rounded up, and never smaller.
func resize(path string, size int64) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, blockMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size = (size + blockUnit - 1) / blockUnit * blockUnit
	if info.Size() >= size {
		return nil
	}
	if err := file.Truncate(size); err != nil {
		return err
	}
	return file.Sync()
}

// check returns an error if the path of a volume is not one that the provisioner gave it: its
// PersistentVolume may have been written by a user.
func (d Directories) check(v Volume) error {
	path := filepath.Join(d.Root, v.Name)
	if v.Path != path && v.Path != filepath.Join(path, blockName) {
		return fmt.Errorf("volume %q is not in %s: it was not provisioned there", v.Name, d.Root)
	}
	return nil
}

// Remove implements Disk.
func (d Directories) Remove(_ context.Context, v Volume) error {
	if err := d.check(v); err != nil {
		return err
	}
	path := filepath.Join(d.Root, v.Name)
	if err := checkUnused(v, path); err != nil {
		return err
	}
	if err := unlimit(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	root, err := os.OpenRoot(d.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(v.Name), root.Close())
}

// checkUnused returns an error while a volume, or something in its directory, is mounted or attached.
func checkUnused(v Volume, path string) error {
	mounted, err := mounts.At(path)
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return fmt.Errorf("volume %q has mounts: %s", v.Name, strings.Join(mounted, ", "))
	}
	if !v.Block {
		return nil
	}
	device, err := loop.Find(filepath.Join(path, blockName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // The directory is removed.
	case err != nil:
		return err
	case device != "":
		return fmt.Errorf("volume %q is attached as %s", v.Name, device)
	}
	return nil
}
