// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"strconv"
)

// limitPIDs limits the processes and threads of a cgroup that exists.
func (m *Manager) limitPIDs(path string, limit int64) error {
	if _, err := os.Stat(m.tree.pids("/")); err != nil {
		return fmt.Errorf("the number of processes cannot be limited: %w", err)
	}
	dir := m.tree.pids(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	return write(dir, "pids.max", strconv.FormatInt(limit, 10))
}
