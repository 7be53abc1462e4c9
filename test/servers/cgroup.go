// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

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

	"github.com/moby/sys/mountinfo"
)

// cgroupDirs are the directories of the cluster's cgroup: one for each hierarchy, a single one with
// cgroup v2.
func cgroupDirs() ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, mount := range mounts {
		dirs = append(dirs, filepath.Join(mount.Mountpoint, cgroupName))
	}
	if len(dirs) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return dirs, nil
}

// addCgroup creates the cgroup of the pods, which kubelet requires.
func addCgroup(dirs []string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := inherit(dir); err != nil {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// inherit copies settings from a cgroup's parent that are not inherited: CPUs and memory nodes in
// v1, controllers in v2.
func inherit(dir string) error {
	parent := filepath.Dir(dir)
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), value, 0o644)
		}
		if err != nil {
			return err
		}
	}
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup kills all processes in the cgroup and removes it.
func removeCgroup(ctx context.Context, dirs []string) error {
	var failed []error
	for _, dir := range dirs {
		failed = append(failed, retry(ctx, func() error {
			below, err := directories(dir)
			if err != nil {
				return err
			}
			// The deepest first: only an empty cgroup can be removed.
			for _, cgroup := range slices.Backward(below) {
				if err := endAll(cgroup); err != nil {
					return err
				}
				if err := os.Remove(cgroup); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return errors.Join(failed...)
}

// retry retries until try succeeds: a killed process takes a moment to end.
func retry(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// directories returns dir and all directories below it, parents first; none if dir does not exist.
func directories(dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	return all, err
}

// endAll kills the processes in a cgroup.
func endAll(cgroup string) error {
	procs, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, field := range strings.Fields(string(procs)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		if err := kill(pid); err != nil {
			return err
		}
	}
	return nil
}
