// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// fsGroup returns the pod's fsGroup, or nil.
func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// fsUser returns the user that all containers of the pod run as, or nil if they differ. Service account
// tokens belong to that user, so that their mode can be 0600.
func fsUser(pod *v1.Pod) *int64 {
	var pods *int64
	if pod.Spec.SecurityContext != nil {
		pods = pod.Spec.SecurityContext.RunAsUser
	}
	var common *int64
	for _, container := range containers(pod) {
		user := pods
		if container.SecurityContext != nil && container.SecurityContext.RunAsUser != nil {
			user = container.SecurityContext.RunAsUser
		}
		if user == nil || (common != nil && *common != *user) {
			return nil
		}
		common = user
	}
	return common
}

// containers returns all init, app and ephemeral containers of the pod.
func containers(pod *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// setGroup changes the group of a file or directory, and lets the group read and, unless readOnly, write
// it. New files in a directory inherit its group.
func setGroup(path string, group int64, readOnly bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return err
	}
	// chmod would follow a symlink, which has no mode of its own.
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	grant := os.FileMode(0o660)
	if readOnly {
		grant = 0o440
	}
	if info.IsDir() {
		grant |= 0o110 | os.ModeSetgid
	}
	return os.Chmod(path, info.Mode()|grant)
}

// setGroupTree changes the group of a tree, the root last.
func setGroupTree(root string, group int64, readOnly bool) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if entry.IsDir() {
			err = setGroupTree(path, group, readOnly)
		} else {
			err = setGroup(path, group, readOnly)
		}
		if err != nil {
			return err
		}
	}
	return setGroup(root, group, readOnly)
}

// hasGroup reports whether setGroup has changed the directory to the group.
func hasGroup(dir string, group int64) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Gid) == group && info.Mode()&os.ModeSetgid != 0
}
