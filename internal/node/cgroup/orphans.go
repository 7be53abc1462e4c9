// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods returns the pods that have a cgroup.
func (m *Manager) Pods() ([]types.UID, error) {
	if m.tree == nil {
		return nil, nil
	}
	found := map[types.UID]bool{}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		level := m.level(class)
		for _, dir := range m.tree.dirs(level) {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for _, entry := range entries {
				name, isChild := m.tree.split(level, entry.Name())
				if uid, isPod := strings.CutPrefix(name, "pod"); isChild && isPod && entry.IsDir() {
					found[types.UID(uid)] = true
				}
			}
		}
	}
	var pods []types.UID
	for uid := range found {
		pods = append(pods, uid)
	}
	slices.Sort(pods)
	return pods, nil
}

// Kill kills the processes in the cgroup of one of a pod's containers. The runtime makes it in the pod's, with the container's ID in
// its name.
func (m *Manager) Kill(uid types.UID, container string) error {
	if m.tree == nil || container == "" {
		return nil
	}
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		for _, dir := range m.tree.dirs(m.path(class, uid)) {
			children, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for _, child := range children {
				if child.IsDir() && strings.Contains(child.Name(), container) {
					errs = append(errs, killTree(filepath.Join(dir, child.Name())))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Destroy kills all processes in a pod's cgroup and removes it. It fails while a killed process has not ended.
func (m *Manager) Destroy(uid types.UID) error {
	if m.tree == nil {
		return nil
	}
	var errs []error
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		for _, dir := range m.tree.dirs(m.path(class, uid)) {
			errs = append(errs, killTree(dir))
		}
	}
	return errors.Join(append(errs, m.Remove(uid))...)
}

// dirs returns the directories of a cgroup.
func (t version2) dirs(path string) []string { return []string{filepath.Join(t.root, path)} }

func (t version1) dirs(path string) []string {
	dirs := make([]string, len(t.all))
	for i, root := range t.all {
		dirs[i] = filepath.Join(root, path)
	}
	return dirs
}

// killTree kills the processes in a cgroup and in its children.
func killTree(dir string) error {
	// Since Linux 5.14, version 2 kills a whole tree, with the processes that are forked meanwhile.
	if file, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0); err == nil {
		_, err = file.WriteString("1")
		return errors.Join(err, file.Close())
	}
	var errs []error
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			errs = append(errs, killIn(path))
		}
		return err
	})
	return errors.Join(append(errs, err)...)
}

// killIn kills the processes in one cgroup.
func killIn(dir string) error {
	text, err := read(dir, "cgroup.procs")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, field := range strings.Fields(text) {
		// 0 is a process of another namespace of process IDs.
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
