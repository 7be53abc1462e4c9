// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// HasController reports whether a controller is mounted. A kernel may have a controller that the machine does not mount;
// CRI-O fails to set its limits then.
func HasController(name string) bool { return hasControllerIn("/sys/fs/cgroup", name) }

func hasControllerIn(root, name string) bool {
	if data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		return slices.Contains(strings.Fields(string(data)), name)
	}
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}
