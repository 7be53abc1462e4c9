// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loop attaches regular files as block devices (loop(4)).
//
// The kernel is the only record of what is attached: sysfs has the backing file of each loop device.
// Therefore each function can be repeated after a crash, and attaches no file twice.
package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The kernel's interfaces.
const (
	control = "/dev/loop-control"
	devices = "/dev"
	sysfs   = "/sys/block"
)

// attempts limits how often Attach asks for a free device: another process may take one first.
const attempts = 32

// attaching serializes Find and configure, so that two calls do not attach a file twice.
var attaching sync.Mutex

// Attach returns the loop device of a file, and attaches one if there is none. If the file has grown since,
// the device grows as well.
func Attach(file string) (device string, err error) {
	if _, err := os.Stat(file); err != nil {
		return "", err
	}
	attaching.Lock()
	defer attaching.Unlock()
	device, err = Find(file)
	if err != nil {
		return "", err
	}
	if device != "" {
		return device, grow(device)
	}
	backing, err := os.OpenFile(file, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer backing.Close()
	for range attempts {
		device, err = configure(backing)
		if !errors.Is(err, unix.EBUSY) {
			return device, err
		}
	}
	return "", fmt.Errorf("cannot attach a loop device to %s: %w", file, err)
}

// configure attaches the next free loop device. It fails with EBUSY if another process has taken it.
func configure(backing *os.File) (string, error) {
	ctl, err := os.OpenFile(control, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("the node has no loop devices: %w", err)
	}
	defer ctl.Close()
	number, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w", err)
	}
	device := fmt.Sprintf("%s/loop%d", devices, number)
	node, err := os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer node.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], backing.Name())
	if err := unix.IoctlLoopConfigure(int(node.Fd()), &config); err != nil {
		return "", fmt.Errorf("attach %s to %s: %w", device, backing.Name(), err)
	}
	return device, nil
}

// Grow makes the device of a file as large as the file, if the file is attached.
func Grow(file string) error {
	device, err := Find(file)
	if device == "" || err != nil {
		return err
	}
	return grow(device)
}

// grow makes a device as large as its file.
func grow(device string) error {
	node, err := os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer node.Close()
	if err := unix.IoctlSetInt(int(node.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("read the size of %s again: %w", device, err)
	}
	return nil
}

// Find returns the loop device of a file, or "" if it has none. The file may have been deleted since it was
// attached.
func Find(file string) (device string, err error) {
	real, err := kernelName(file)
	if err != nil {
		return "", err
	}
	found, err := attached(func(backing string) bool { return backing == real })
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// DetachBelow detaches the loop devices of all files below a directory, before the directory is removed.
func DetachBelow(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := attached(func(backing string) bool { return strings.HasPrefix(backing, real+"/") })
	for _, device := range found {
		err = errors.Join(err, Detach(device))
	}
	return err
}

// attached returns the loop devices whose files match.
func attached(matches func(backing string) bool) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(sysfs, "loop*"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		device := filepath.Join(devices, filepath.Base(name))
		backing, err := BackingFile(device)
		if err != nil {
			return nil, err
		}
		if backing != "" && matches(backing) {
			found = append(found, device)
		}
	}
	return found, nil
}

// kernelName returns the kernel's name of a file: without symlinks, and marked if it is deleted.
func kernelName(file string) (string, error) {
	real, err := filepath.EvalSymlinks(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(file)) + " (deleted)", nil
}

// BackingFile returns the file that a loop device is attached to, or "" if the device is free or is not a
// loop device.
func BackingFile(device string) (string, error) {
	data, err := os.ReadFile(filepath.Join(sysfs, filepath.Base(device), "loop", "backing_file"))
	// ENXIO, EINVAL: the device was detached after the directory was found.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return strings.TrimSuffix(string(data), "\n"), err
}

// Detach detaches a loop device from its file. The kernel delays it until the last user closes the device.
func Detach(device string) error {
	node, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer node.Close()
	err = unix.IoctlSetInt(int(node.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: it is free
		return fmt.Errorf("detach %s: %w", device, err)
	}
	return nil
}
