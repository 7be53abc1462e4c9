// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// readFile reads a file of the kernel. os.ReadFile would register it with Go's poller and inspect it first, which takes longer
// than the reading, and a node reads thousands of these files at a time. They never block.
func readFile(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var some [2 << 10]byte // on the stack; most files are smaller
	content := some[:0]
	for {
		n, err := unix.Read(fd, content[len(content):cap(content)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return string(content), nil
		}
		content = content[:len(content)+n]
		if len(content) == cap(content) {
			content = append(content, 0)[:len(content)]
		}
	}
}
