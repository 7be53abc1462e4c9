// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/mounts"
)

// subpath is a file or directory of a volume that is mounted without the rest of the volume.
//
// Containers own the volume's content and may replace any part of the path by a symlink at any time.
// Therefore the kernel resolves the path (openat2(2) with RESOLVE_BENEATH), and the result is
// bind-mounted by descriptor to a target that only the agent may enter. The runtime mounts the target.
type subpath struct {
	root   string // of the volume
	path   string // relative to root
	target string
}

func (m *Manager) subpathTarget(uid types.UID, volume, container string, index int) string {
	return filepath.Join(m.options.Layout.SubpathsDir(uid), volume, container, strconv.Itoa(index))
}

// bind bind-mounts the subpath at its target and returns the target. If the subpath does not exist, it
// is created as a directory with the volume's mode.
func (s subpath) bind() (string, error) {
	root, err := unix.Open(s.root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: s.root, Err: err}
	}
	defer unix.Close(root)

	source, err := resolve(root, s.path, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		if err := makeBelow(root, s.path); err != nil {
			return "", err
		}
		source, err = resolve(root, s.path, unix.O_PATH)
	}
	if err != nil {
		return "", &os.PathError{Op: "resolve", Path: filepath.Join(s.root, s.path), Err: err}
	}
	defer unix.Close(source)
	return s.target, s.mount(source)
}

// mount bind-mounts the descriptor's file at the target, unless that is done already.
func (s subpath) mount(source int) error {
	var want unix.Stat_t
	if err := unix.Fstat(source, &want); err != nil {
		return err
	}
	if mounted, err := unmountOther(s.target, &want); err != nil || mounted {
		return err
	}
	if err := makeTarget(s.target, want.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	descriptor := "/proc/self/fd/" + strconv.Itoa(source)
	if err := unix.Mount(descriptor, s.target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount at %s: %w", s.target, err)
	}
	return nil
}

// unmountOther unmounts target if another file than the wanted one is mounted there, which an earlier
// start of the container left. It reports whether the wanted file is mounted.
func unmountOther(target string, want *unix.Stat_t) (bool, error) {
	var have unix.Stat_t
	err := unix.Lstat(target, &have)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if have.Dev == want.Dev && have.Ino == want.Ino {
		return true, nil
	}
	return false, mounts.DetachAt(target)
}

// makeTarget creates the empty directory or file to mount on. It removes an existing one first, which
// may be of the other type.
func makeTarget(target string, directory bool) error {
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if directory {
		return os.Mkdir(target, 0o750)
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// resolve opens a path below root. It fails if the path leaves root, for example by a symlink.
func resolve(root int, path string, flags uint64) (int, error) {
	how := &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		// EAGAIN: a concurrent rename kept the kernel from verifying the path.
		fd, err := unix.Openat2(root, path, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// makeBelow creates the missing directories of a path that must not leave root. They get the mode of root, with its setuid,
// setgid and sticky bits, as upstream's.
func makeBelow(root int, path string) error {
	var base unix.Stat_t
	if err := unix.Fstat(root, &base); err != nil {
		return err
	}
	mode := base.Mode & 0o7777
	parts := strings.Split(filepath.Clean(path), "/")
	for i := range parts {
		if err := makeOne(root, filepath.Join(parts[:i]...), parts[i], mode); err != nil {
			return err
		}
	}
	return nil
}

func makeOne(root int, parent, name string, mode uint32) error {
	if parent == "" {
		parent = "."
	}
	dir, err := resolve(root, parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return &os.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(dir)
	err = unix.Mkdirat(dir, name, mode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	// The umask cleared bits, and mkdirat(2) ignores some.
	made, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(made)
	return unix.Fchmod(made, mode)
}

// openBelow opens a regular file of a volume for reading.
func openBelow(root, path string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	// A pipe must not block the agent.
	fd, err := resolve(dir, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
