// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"strconv"
)

func (t version1) limitPIDs(path string, limit int64) error { return limitPIDs(t, path, limit) }

func (t version2) limitPIDs(path string, limit int64) error { return limitPIDs(t, path, limit) }

func limitPIDs(tree hierarchy, path string, limit int64) error {
	if _, err := os.Stat(tree.pids("/")); err != nil {
		return fmt.Errorf("the number of processes cannot be limited: %w", err)
	}
	dir := tree.pids(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	return write(dir, "pids.max", strconv.FormatInt(limit, 10))
}
