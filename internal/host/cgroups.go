// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const cgroupRoot = "/sys/fs/cgroup"

// emptyLimit limits the wait until a cgroup is empty whose processes were killed.
const emptyLimit = 10 * time.Second

// hierarchy is a hierarchy of cgroups, as a line of /proc/self/cgroup names it (cgroups(7)).
type hierarchy struct {
	// controllers are those of version 1, as its mount option has them; none for version 2.
	controllers string
	// alone is set if there is no other hierarchy.
	alone bool
}

func parseCgroups(text string) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(text) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			all = append(all, hierarchy{controllers: fields[1]})
		}
	}
	if len(all) == 1 {
		all[0].alone = true
	}
	return all
}

func (c hierarchy) unified() bool { return c.controllers == "" }

// mountPoint is where systemd, and other programs like it, mount the hierarchy.
func (c hierarchy) mountPoint() string {
	switch {
	case c.unified() && c.alone:
		return cgroupRoot
	case c.unified():
		return cgroupRoot + "/unified"
	}
	return cgroupRoot + "/" + strings.TrimPrefix(c.controllers, "name=")
}

// cgroup is the path of a machine's cgroup in each hierarchy.
func (h *Host) cgroup(name string) string { return "/kindred-machines-" + h.id() + "/" + name }

// cgroupDirs returns the directories of a cgroup.
func cgroupDirs(path string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, c := range parseCgroups(string(text)) {
		if _, err := os.Stat(c.mountPoint()); err != nil {
			continue // the host has not mounted it
		}
		dirs = append(dirs, c.mountPoint()+path)
	}
	return dirs, nil
}

// enterCgroup moves a process to a cgroup, and limits the memory of that; 0 is no limit.
func enterCgroup(path string, pid int, memory int64) error {
	dirs, err := cgroupDirs(path)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := makeCgroup(dir); err != nil {
			return err
		}
		if err := limitMemory(dir, memory); err != nil {
			return err
		}
		if err := writeControl(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// makeCgroup creates a cgroup and that above it. A hierarchy of version 1 with cpuset needs its CPUs before it takes processes; one of
// version 2 has the controllers that the cgroup above enables.
func makeCgroup(dir string) error {
	parent := filepath.Dir(dir)
	for _, d := range []string{parent, dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := inheritCPUs(d); err != nil {
			return err
		}
		if d == parent {
			if err := enableControllers(filepath.Dir(parent)); err != nil {
				return err
			}
			if err := enableControllers(parent); err != nil {
				return err
			}
		}
	}
	return nil
}

func inheritCPUs(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(strings.TrimSpace(string(own))) > 0 {
			continue // another hierarchy, or it has some
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil || len(strings.TrimSpace(string(above))) == 0 {
			continue // version 2, where none means all
		}
		if err := writeControl(dir, name, strings.TrimSpace(string(above))); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers lets the children of a cgroup of version 2 have all controllers that it has.
func enableControllers(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(text)) {
		if err := writeControl(dir, "cgroup.subtree_control", "+"+name); err != nil {
			return err
		}
	}
	return nil
}

// delegate makes the root of a machine's cgroups of version 2 as Kindred needs it: processes are in a child, because a cgroup that
// enables controllers for children has no processes itself.
func delegate(root string) error {
	child := filepath.Join(root, "init")
	if err := os.MkdirAll(child, 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "cgroup.procs"))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(text)) {
		if err := writeControl(child, "cgroup.procs", pid); err != nil {
			return err
		}
	}
	return enableControllers(root)
}

// limitMemory limits a cgroup with the controller memory.
func limitMemory(dir string, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return writeControl(dir, name, strconv.FormatInt(bytes, 10))
		}
	}
	return nil
}

func writeControl(dir, name, value string) error {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// removeCgroup removes a cgroup with its children, and that above it if it has no others. Processes that were killed are in it for a moment.
func removeCgroup(ctx context.Context, path string) error {
	dirs, err := cgroupDirs(path)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := removeTree(ctx, dir); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		_ = unix.Rmdir(filepath.Dir(dir)) // it may have others
	}
	return nil
}

// removeTree removes the directories of a cgroup, the innermost first.
func removeTree(ctx context.Context, dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(all) {
		if err := removeCgroupDir(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func removeCgroupDir(ctx context.Context, path string) error {
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, emptyLimit, true, func(context.Context) (bool, error) {
		switch err := unix.Rmdir(path); {
		case err == nil, errors.Is(err, unix.ENOENT):
			return true, nil
		case errors.Is(err, unix.EBUSY):
			return false, nil
		default:
			return false, &os.PathError{Op: "rmdir", Path: path, Err: err}
		}
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s still has processes", path)
	}
	return err
}
