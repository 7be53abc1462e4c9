// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a tmpfs of at most size bytes (0: the kernel's default) at dir, unless one is mounted.
func mountTmpfs(dir string, size int64) error {
	mounted, err := mountinfo.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	var options []string
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	// Secrets must not be swapped out. Kernels before 6.4 lack the option.
	err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(append(options, "noswap"), ","))
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(options, ","))
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", dir, err)
	}
	return nil
}
