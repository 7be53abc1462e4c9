// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The suite of node agents looks for the cgroups of pods in /kubepods, which other agents of the machine may have. So the
// run has a cgroup of its own in each hierarchy of cgroup v1, and in that of v2 beside them, and sees it as the root. On a machine
// with v2 alone it sees the machine's root, because the cgroup of a process cannot limit other cgroups there.

// hierarchy is a mounted hierarchy of cgroups.
type hierarchy struct {
	kind         string // of the file system: cgroup or cgroup2
	dir, options string // where and how it is mounted
	own          string // the directory of this process' cgroup
}

// hierarchies returns the hierarchies that are mounted, given the contents of /proc/self/mounts and /proc/self/cgroup. It returns
// none on a machine with cgroup v2 alone.
func hierarchies(mounts, cgroups string) []hierarchy {
	var found []hierarchy
	version1 := false
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] != "cgroup" && fields[2] != "cgroup2" {
			continue
		}
		h := hierarchy{kind: fields[2], dir: fields[1]}
		version1 = version1 || h.kind == "cgroup"
		options := strings.Split(fields[3], ",")
		for line := range strings.Lines(cgroups) {
			_, entry, _ := strings.Cut(strings.TrimSpace(line), ":")
			controllers, path, _ := strings.Cut(entry, ":")
			first, _, _ := strings.Cut(controllers, ",") // empty for v2: cgroups(7)
			if h.kind == "cgroup2" && first == "" || h.kind == "cgroup" && slices.Contains(options, first) {
				h.options, h.own = controllers, filepath.Join(h.dir, path)
			}
		}
		if h.own != "" {
			found = append(found, h)
		}
	}
	if !version1 {
		return nil
	}
	return found
}

func ownHierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	return hierarchies(string(mounts), string(cgroups)), err
}

// enterCgroups moves this process into a new cgroup of each hierarchy. leave moves it back, and removes them.
func enterCgroups() (leave func() error, err error) {
	all, err := ownHierarchies()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("conformance-%d", os.Getpid())
	leave = func() error {
		var errs []error
		for _, h := range all {
			errs = append(errs, join(h.own), removeCgroup(filepath.Join(h.own, name)))
		}
		return errors.Join(errs...)
	}
	for _, h := range all {
		dir := filepath.Join(h.own, name)
		err := os.Mkdir(dir, 0o755)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // they are empty at first
			if value, missing := os.ReadFile(filepath.Join(h.own, file)); missing == nil {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), bytes.TrimSpace(value), 0o644))
			}
		}
		if err := errors.Join(err, join(dir)); err != nil {
			return nil, errors.Join(err, leave())
		}
	}
	return leave, nil
}

func join(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// removeCgroup removes a cgroup and those below it. None may have processes.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeCgroup(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}

// mountCgroups mounts each hierarchy again: with the cgroup of this process, in whose namespace it is, as the root.
func mountCgroups() error {
	all, err := ownHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		options := h.options
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		err := unix.Unmount(h.dir, unix.MNT_DETACH)
		if err == nil {
			err = unix.Mount(h.kind, h.dir, h.kind, 0, options)
		}
		if err != nil {
			return fmt.Errorf("mount the cgroups of %s: %w", h.options, err)
		}
	}
	return nil
}
