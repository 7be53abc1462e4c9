// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// batch is the number of directory entries that are read at once, and after which pause is called.
	batch = 256
	// longestPath is the part of a path that one call gets. The kernel limits it to 4096 bytes, but not the depth of
	// directories.
	longestPath = 2048
	// blockSize is the unit of st_blocks.
	blockSize = 512
)

// Measure measures a directory now, as a [Meter] does by walking, but without pauses: it is for small directories.
func Measure(ctx context.Context, path string) (Used, error) {
	return walk(ctx, path, func(context.Context) {})
}

// walk measures a directory: all files below it on its own file system, each once, however many names it has. Symbolic
// links are not followed. Files that vanish meanwhile do not count. pause is called often.
func walk(ctx context.Context, path string, pause func(context.Context)) (Used, error) {
	root, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Used{}, fmt.Errorf("measure %s: %w", path, err)
	}
	defer unix.Close(root)
	var stat unix.Stat_t
	if err := unix.Fstat(root, &stat); err != nil {
		return Used{}, fmt.Errorf("measure %s: %w", path, err)
	}
	w := walker{root: root, device: stat.Dev, links: map[uint64]bool{}, pause: pause}
	w.count(&stat)
	for w.dirs = []string{"."}; len(w.dirs) > 0; {
		dir := w.dirs[len(w.dirs)-1]
		w.dirs = w.dirs[:len(w.dirs)-1]
		if err := w.read(ctx, dir); err != nil {
			return Used{}, fmt.Errorf("measure %s: %w", path, err)
		}
	}
	return w.used, nil
}

// walker is the state of one walk.
type walker struct {
	root   int
	device uint64
	links  map[uint64]bool // inodes with several names that have been counted
	dirs   []string        // to read, relative to root
	used   Used
	pause  func(context.Context)
}

func (w *walker) count(stat *unix.Stat_t) {
	w.used.Bytes += stat.Blocks * blockSize
	w.used.Inodes++
}

// read counts the entries of a directory.
func (w *walker) read(ctx context.Context, dir string) error {
	fd, err := w.open(dir)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), dir)
	defer file.Close()
	for {
		names, err := file.Readdirnames(batch)
		for _, name := range names {
			if err := w.visit(fd, dir, name); err != nil {
				return err
			}
		}
		w.pause(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, io.EOF) || isGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *walker) visit(dirFD int, dir, name string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(dirFD, name, &stat, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s/%s: %w", dir, name, err)
	}
	isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if stat.Dev != w.device || !isDir && stat.Nlink > 1 && w.links[stat.Ino] {
		return nil
	}
	if !isDir && stat.Nlink > 1 {
		w.links[stat.Ino] = true
	}
	w.count(&stat)
	if isDir {
		w.dirs = append(w.dirs, dir+"/"+name)
	}
	return nil
}

// open opens a directory below root, piece by piece if its path is long. A container may exchange a directory for a
// symbolic link at any time, so that none is followed.
func (w *walker) open(dir string) (int, error) {
	at := w.root
	for {
		piece, rest := cut(dir)
		fd, err := openBeneath(at, piece)
		if at != w.root {
			_ = unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		at, dir = fd, rest
	}
}

// cut splits a path so that its first piece is not too long.
func cut(path string) (piece, rest string) {
	if len(path) <= longestPath {
		return path, ""
	}
	i := strings.LastIndexByte(path[:longestPath], '/')
	return path[:i], path[i+1:]
}

func openBeneath(at int, path string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOATIME
	return unix.Openat2(at, path, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
}

// isGone reports whether a file was removed or replaced during the walk.
func isGone(err error) bool {
	for _, gone := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.ESTALE} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
