// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"path"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Driver is the program that creates cgroups: a value of the KubeletConfiguration's cgroupDriver.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

const sliceSuffix = ".slice"

// sliceUnits is a hierarchy whose cgroups are those of slice units. systemd creates them, and the runtime's scope units
// are in them. They are read and emptied like other cgroups.
type sliceUnits struct {
	hierarchy
	// unit returns the manager of a slice.
	unit func(*cgroups.Cgroup) (cgroups.Manager, error)
}

// newSlices returns the hierarchy of this machine's systemd.
func newSlices(tree hierarchy) (hierarchy, error) {
	if !systemd.IsRunningSystemd() {
		return nil, errors.New(`cgroupDriver is "systemd", and this machine was not booted with systemd; set it to "cgroupfs"`)
	}
	unit := func(c *cgroups.Cgroup) (cgroups.Manager, error) { return systemd.NewLegacyManager(c, nil) }
	if tree.version() == 2 {
		unit = func(c *cgroups.Cgroup) (cgroups.Manager, error) { return systemd.NewUnifiedManager(c, "") }
	}
	return sliceUnits{tree, unit}, nil
}

// join names a slice as the kubelet does: the name of its parent is the beginning of its own, after which a dash is a
// level. "/a.slice" and "b-c" are "/a.slice/a-b_c.slice".
func (sliceUnits) join(parent, name string) string {
	unit := strings.ReplaceAll(name, "-", "_") + sliceSuffix
	if parent != "/" {
		unit = strings.TrimSuffix(path.Base(parent), sliceSuffix) + "-" + unit
	}
	return path.Join(parent, unit)
}

func (sliceUnits) split(parent, entry string) (string, bool) {
	name, isSlice := strings.CutSuffix(entry, sliceSuffix)
	name, isChild := strings.CutPrefix(name, strings.TrimSuffix(path.Base(parent), sliceSuffix)+"-")
	return strings.ReplaceAll(name, "_", "-"), isSlice && isChild
}

func (s sliceUnits) manager(slice string) (cgroups.Manager, error) {
	dir, name := path.Split(slice)
	parent := "-.slice"
	if dir != "/" {
		parent = path.Base(dir)
	}
	return s.unit(&cgroups.Cgroup{Name: name, Parent: parent, Systemd: true, Resources: &cgroups.Resources{}})
}

func (s sliceUnits) create(slice string, limits *runtimeapi.LinuxContainerResources) error {
	manager, err := s.manager(slice)
	if err != nil {
		return err
	}
	const noProcess = -1
	if err := manager.Apply(noProcess); err != nil || limits == nil {
		return err
	}
	return manager.Set(s.resources(limits))
}

// resources are the limits that create sets. The library leaves what is 0 unchanged, but for the period.
func (s sliceUnits) resources(limits *runtimeapi.LinuxContainerResources) *cgroups.Resources {
	r := unrestricted()
	if limits.CpuQuota != 0 {
		r.CpuQuota, r.CpuPeriod = limits.CpuQuota, uint64(limits.CpuPeriod)
	}
	r.Memory = max(limits.MemoryLimitInBytes, 0)
	if s.version() == 2 {
		r.Unified = limits.Unified
	}
	for _, pages := range limits.HugepageLimits {
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: pages.PageSize, Limit: pages.Limit})
	}
	if limits.CpuShares <= 0 {
		return r
	}
	if s.version() == 2 {
		r.CpuWeight = uint64(weight(limits.CpuShares))
	} else {
		r.CpuShares = uint64(limits.CpuShares)
	}
	return r
}

// unrestricted returns resources that change nothing: neither access to devices, nor by a pause of the processes.
func unrestricted() *cgroups.Resources {
	return &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
}

func (s sliceUnits) limitPIDs(slice string, limit int64) error {
	manager, err := s.manager(slice)
	if err != nil {
		return err
	}
	r := unrestricted()
	r.PidsLimit = &limit
	return manager.Set(r)
}

// remove stops the slice's unit. A slice without cgroup has none.
func (s sliceUnits) remove(slice string) error {
	exists := false
	for _, dir := range s.dirs(slice) {
		exists = exists || cgroups.PathExists(dir)
	}
	if !exists {
		return nil
	}
	manager, err := s.manager(slice)
	if err != nil {
		return err
	}
	return errors.Join(manager.Destroy(), s.hierarchy.remove(slice))
}
