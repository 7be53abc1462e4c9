// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountTmpfs mounts memory of at most size bytes (0: what the kernel deems right)
// at dir, unless that was done before.
func mountTmpfs(dir string, size int64) error {
	mounted, err := isMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	var options []string
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	// Secrets must not reach a swap device; kernels before 6.4 don't know the option.
	err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(append(options, "noswap"), ","))
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(options, ","))
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", dir, err)
	}
	return nil
}

// isMountPoint says that another file system begins at dir.
func isMountPoint(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, err
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, err
	}
	return here.Dev != above.Dev, nil
}

// unmountBelow unmounts everything at or below dir. It returns an error unless
// nothing is mounted there any more, so that it is safe to remove dir then.
func unmountBelow(dir string) error {
	points, err := mountPointsBelow(dir)
	if err != nil || len(points) == 0 {
		return err
	}
	// The table has a mount after the one it is on top of or below.
	for _, point := range slices.Backward(points) {
		if err := unmount(point); err != nil {
			return err
		}
	}
	points, err = mountPointsBelow(dir)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("still mounted after unmount: %s", strings.Join(points, ", "))
	}
	return err
}

// unmount lets go of a mount point; one that is busy is detached, so that it goes
// with its last user.
func unmount(point string) error {
	err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

func mountPointsBelow(dir string) ([]string, error) {
	// The kernel shows paths without symlinks.
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer table.Close()
	return parseMountPoints(table, real)
}

// parseMountPoints reads proc_pid_mountinfo(5): the fifth field of a line is the
// mount point, with blanks as octal escapes.
func parseMountPoints(table io.Reader, below string) ([]string, error) {
	var points []string
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if point == below || strings.HasPrefix(point, below+"/") {
			points = append(points, point)
		}
	}
	return points, lines.Err()
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
