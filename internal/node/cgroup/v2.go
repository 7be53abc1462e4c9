// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// version2 is the unified hierarchy. A cgroup has the controllers that its parent enables in
// cgroup.subtree_control.
type version2 struct {
	root        string
	controllers []string
}

// detectV2 returns the unified hierarchy if it has the controllers for CPU and memory. Beside version
// 1 it often exists without controllers.
func detectV2(root string) hierarchy {
	data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	tree := version2{root: root, controllers: strings.Fields(string(data))}
	available := " " + strings.Join(tree.controllers, " ") + " "
	if !strings.Contains(available, " cpu ") || !strings.Contains(available, " memory ") {
		return nil
	}
	return tree
}

func (t version2) version() int { return 2 }

func (t version2) join(parent, name string) string { return filepath.Join(parent, name) }

func (t version2) split(_, entry string) (string, bool) { return entry, true }

func (t version2) create(path string, limits *runtimeapi.LinuxContainerResources) error {
	dir := t.root
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		if err := t.enable(dir); err != nil {
			return err
		}
		dir = filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if limits == nil {
		return nil
	}
	var errs []error
	if limits.CpuShares > 0 {
		errs = append(errs, write(dir, "cpu.weight", strconv.FormatInt(weight(limits.CpuShares), 10)))
	}
	switch {
	case limits.CpuQuota > 0:
		errs = append(errs, write(dir, "cpu.max", fmt.Sprintf("%d %d", limits.CpuQuota, limits.CpuPeriod)))
	case limits.CpuQuota == criconfig.NoQuota:
		errs = append(errs, write(dir, "cpu.max", "max"))
	}
	if limits.MemoryLimitInBytes > 0 {
		errs = append(errs, write(dir, "memory.max", strconv.FormatInt(limits.MemoryLimitInBytes, 10)))
	}
	for file, value := range limits.Unified {
		errs = append(errs, write(dir, file, value))
	}
	for _, pages := range limits.HugepageLimits {
		for _, kind := range []string{".max", ".rsvd.max"} {
			errs = append(errs, writeIfPresent(dir, "hugetlb."+pages.PageSize+kind, strconv.FormatUint(pages.Limit, 10)))
		}
	}
	return errors.Join(errs...)
}

// enable enables the controllers for the children of dir. It writes them one by one, because a write
// fails as a whole if the kernel refuses one of them.
func (t version2) enable(dir string) error {
	enabled, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	have := " " + strings.TrimSpace(string(enabled)) + " "
	for _, c := range t.controllers {
		if strings.Contains(have, " "+c+" ") {
			continue
		}
		err := write(dir, "cgroup.subtree_control", "+"+c)
		if err != nil && (c == "cpu" || c == "memory") {
			return err
		}
	}
	return nil
}

func (t version2) limits(path string) (cpu bandwidth, memory int64) {
	dir := filepath.Join(t.root, path)
	text, err := read(dir, "cpu.max")
	quota, period, _ := strings.Cut(text, " ")
	return bandwidth{parseLimit(quota, err), parseLimit(period, err)}, parseLimit(read(dir, "memory.max"))
}

// weight converts shares (2 to 262144) to weight (1 to 10000) as runc does (KEP-2254).
func weight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

func (t version2) remove(path string) error { return removeTree(filepath.Join(t.root, path)) }
