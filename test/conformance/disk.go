// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// diskSize is the size of a node's disk. Its file has only what the node writes.
const diskSize = 14 << 30

// disk is a file system of a node's own. Other users of the machine's disk would otherwise put the node under pressure, and the
// specs of eviction them.
type disk struct{ dir string }

// mountDisk makes the file system below dir and mounts it there. It has no quotas: not all kernels have them.
func mountDisk(ctx context.Context, dir string) (disk, error) {
	d := disk{filepath.Join(dir, "disk")}
	image := filepath.Join(dir, "disk.img")
	file, err := os.Create(image)
	if err != nil {
		return disk{}, err
	}
	err = errors.Join(file.Truncate(diskSize), file.Close(), os.Mkdir(d.dir, 0o755))
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", image},
		// What is removed is given back to the machine's disk.
		{"mount", "-o", "loop,discard", image, d.dir},
	} {
		if err != nil {
			break
		}
		if out, failed := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); failed != nil {
			err = fmt.Errorf("%s: %w: %s", command[0], failed, out)
		}
	}
	// The mount keeps the file.
	return d, errors.Join(err, os.Remove(image))
}

// unmount unmounts the file system, which removes it, and moves files of it to the directory above.
func (d disk) unmount(files []string) (moved []string, err error) {
	for _, file := range files {
		content, failed := os.ReadFile(file)
		to := filepath.Join(filepath.Dir(d.dir), filepath.Base(file))
		err = errors.Join(err, failed, os.WriteFile(to, content, 0o644))
		moved = append(moved, to)
	}
	return moved, errors.Join(err, os.NewSyscallError("umount", unix.Unmount(d.dir, unix.MNT_DETACH)))
}
