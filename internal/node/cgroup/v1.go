// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// version1 is one hierarchy for each controller. The manager sets limits in two of them. runc creates
// directories in all, so that a pod's cgroups are removed from all.
type version1 struct {
	cpu, memory string
	all         []string
}

func detectV1(root string) hierarchy {
	tree := version1{cpu: filepath.Join(root, "cpu"), memory: filepath.Join(root, "memory")}
	for _, dir := range []string{tree.cpu, tree.memory} {
		if _, err := os.Stat(filepath.Join(dir, "tasks")); err != nil {
			return nil
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			tree.all = append(tree.all, filepath.Join(root, entry.Name()))
		}
	}
	return tree
}

func (t version1) version() int { return 1 }

func (t version1) join(parent, name string) string { return filepath.Join(parent, name) }

func (t version1) split(_, entry string) (string, bool) { return entry, true }

func (t version1) create(path string, limits *runtimeapi.LinuxContainerResources) error {
	cpu, memory := filepath.Join(t.cpu, path), filepath.Join(t.memory, path)
	if err := errors.Join(os.MkdirAll(cpu, 0o755), os.MkdirAll(memory, 0o755)); err != nil {
		return err
	}
	if limits == nil {
		return nil
	}
	var errs []error
	if limits.CpuShares > 0 {
		errs = append(errs, write(cpu, "cpu.shares", strconv.FormatInt(limits.CpuShares, 10)))
	}
	errs = append(errs, setQuotaV1(cpu, limits))
	if limits.MemoryLimitInBytes > 0 {
		errs = append(errs, write(memory, "memory.limit_in_bytes", strconv.FormatInt(limits.MemoryLimitInBytes, 10)))
	}
	if len(limits.HugepageLimits) == 0 {
		return errors.Join(errs...)
	}
	hugetlb := t.controller("hugetlb", path)
	errs = append(errs, os.MkdirAll(hugetlb, 0o755))
	for _, pages := range limits.HugepageLimits {
		for _, kind := range []string{".limit_in_bytes", ".rsvd.limit_in_bytes"} {
			errs = append(errs, writeIfPresent(hugetlb, "hugetlb."+pages.PageSize+kind, strconv.FormatUint(pages.Limit, 10)))
		}
	}
	return errors.Join(errs...)
}

// setQuotaV1 sets quota and period, each of which has its own file. The kernel refuses a period with which the cgroup, with
// its present quota, would have less time than a child, or more than its parent. The new quota goes first then.
func setQuotaV1(dir string, limits *runtimeapi.LinuxContainerResources) error {
	quota := func() error { return write(dir, "cpu.cfs_quota_us", strconv.FormatInt(limits.CpuQuota, 10)) }
	period := func() error { return write(dir, "cpu.cfs_period_us", strconv.FormatInt(limits.CpuPeriod, 10)) }
	switch {
	case limits.CpuQuota == 0:
		return nil
	case limits.CpuQuota == criconfig.NoQuota:
		return quota()
	}
	if period() == nil {
		return quota()
	}
	if err := quota(); err != nil {
		return err
	}
	return period()
}

// noLimit is the least value that the kernel shows for unlimited memory, which it rounds to pages.
const noLimit = 1 << 62

func (t version1) limits(path string) (cpu bandwidth, memory int64) {
	memory = parseLimit(read(filepath.Join(t.memory, path), "memory.limit_in_bytes"))
	if memory >= noLimit {
		memory = -1
	}
	dir := filepath.Join(t.cpu, path)
	return bandwidth{parseLimit(read(dir, "cpu.cfs_quota_us")), parseLimit(read(dir, "cpu.cfs_period_us"))}, memory
}

func (t version1) remove(path string) error {
	var errs []error
	for _, root := range t.all {
		errs = append(errs, removeTree(filepath.Join(root, path)))
	}
	return errors.Join(errs...)
}
