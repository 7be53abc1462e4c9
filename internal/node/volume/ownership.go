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

// fsGroup returns the group that is to own the pod's volumes, or nil.
func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// fsUser returns the one user that all containers of the pod run as, or nil. A
// service account token belongs to that user, so that it can be mode 0600.
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

// containers returns all containers of the pod, of every kind.
func containers(pod *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		// The types share their fields so that one converts to the other.
		out = append(out, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// give lets the group read, and write unless readOnly, the file or directory.
// New files in a directory inherit its group.
func give(path string, group int64, readOnly bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return err
	}
	// A symlink has no mode of its own: chmod would change what it points at.
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

// giveTree gives a whole tree to the group, the root last.
func giveTree(root string, group int64, readOnly bool) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if entry.IsDir() {
			err = giveTree(path, group, readOnly)
		} else {
			err = give(path, group, readOnly)
		}
		if err != nil {
			return err
		}
	}
	return give(root, group, readOnly)
}

// belongsTo says that the directory was given to the group before.
func belongsTo(dir string, group int64) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Gid) == group && info.Mode()&os.ModeSetgid != 0
}
