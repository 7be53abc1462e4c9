// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// TestQuota: a pod's cgroup has the quota of the configured period. If limits of CPU are not enforced, it loses the quota that an
// earlier agent gave it. Grow does not lower the CPU time for each period.
func TestQuota(t *testing.T) {
	const ms = time.Millisecond
	off := criconfig.Quota{Off: true}
	for version, files := range map[int]map[string]string{
		1: {"cpu/tasks": "", "memory/tasks": ""},
		2: {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory", "k/cgroup.subtree_control": "cpu memory"},
	} {
		m := newIn(tree(t, files), "/k")
		for _, step := range []struct {
			quota criconfig.Quota
			grow  bool
			cpu   string
			want  bandwidth
		}{
			{criconfig.Quota{}, false, "500m", bandwidth{50000, 100000}},
			{criconfig.Quota{Period: 10 * ms}, true, "400m", bandwidth{50000, 100000}},
			{criconfig.Quota{Period: 10 * ms}, true, "600m", bandwidth{6000, 10000}},
			{criconfig.Quota{Period: 10 * ms}, false, "400m", bandwidth{4000, 10000}},
			{criconfig.Quota{Period: 1000 * ms}, true, "300m", bandwidth{4000, 10000}},
			{criconfig.Quota{Period: 1000 * ms}, false, "2", bandwidth{2000000, 1000000}},
			{off, true, "1", bandwidth{-1, 0}},
			{criconfig.Quota{Period: 10 * ms}, true, "1", bandwidth{-1, 0}},
			{criconfig.Quota{Period: 10 * ms}, false, "1", bandwidth{10000, 10000}},
			{off, false, "1", bandwidth{-1, 0}},
		} {
			m.Quota = step.quota
			set := m.Ensure
			if step.grow {
				set = m.Grow
			}
			if _, err := set(podWith("g", list(step.cpu, "1Mi"), list(step.cpu, "1Mi"))); err != nil {
				t.Fatal(err)
			}
			got, _ := m.tree.limits("/k/podg")
			if got.quota < 0 {
				got.period = 0
			}
			if got != step.want {
				t.Errorf("version %d, %+v: %+v", version, step, got)
			}
		}
	}
}

// TestPodWithoutLimit: the cgroup of a pod that limits no CPU has no quota, also if limits are not enforced.
func TestPodWithoutLimit(t *testing.T) {
	for _, off := range []bool{false, true} {
		root := tree(t, map[string]string{"cpu/tasks": "", "memory/tasks": ""})
		m := newIn(root, "/k")
		m.Quota.Off = off
		if _, err := m.Ensure(podWith("b", list("250m", ""), nil)); err != nil {
			t.Fatal(err)
		}
		if quota, ok := files(t, root)["cpu/k/burstable/podb/cpu.cfs_quota_us"]; ok {
			t.Errorf("off %t: quota %s", off, quota)
		}
	}
}

// TestSlicesWithoutQuota: systemd removes the quota of a unit.
func TestSlicesWithoutQuota(t *testing.T) {
	m, fake := managerOfSlices(t, unified)
	m.Quota.Off = true
	if _, err := m.Ensure(podWith("4f-g", list("500m", "64Mi"), list("500m", "64Mi"))); err != nil {
		t.Fatal(err)
	}
	if set := fake.set["kindred_0a-pods-pod4f_g.slice"]; len(set) == 0 || set[0].CpuQuota != -1 || set[0].CpuWeight != 20 {
		t.Errorf("resources %+v", set)
	}
}

// TestPeriodInKernel: the kernel accepts another period of a cgroup whose child has a limit.
func TestPeriodInKernel(t *testing.T) {
	parent := fmt.Sprintf("/kindred-period-%d", os.Getpid())
	m := newIn("/sys/fs/cgroup", parent)
	if m.tree == nil {
		t.Skip("cgroups cannot be written")
	}
	t.Cleanup(func() { _ = m.tree.remove(parent) })
	pod := podWith("u", list("500m", "64Mi"), list("500m", "64Mi"))
	path, err := m.Ensure(pod)
	if err != nil {
		t.Fatal(err)
	}
	quota := criconfig.Quota{}
	if err := m.tree.create(filepath.Join(path, "child"), quota.Resources(nil, list("500m", ""))); err != nil {
		t.Fatal(err)
	}
	for _, period := range []time.Duration{time.Second, 10 * time.Millisecond, 100 * time.Millisecond} {
		m.Quota.Period = period
		if _, err := m.Ensure(pod); err != nil {
			t.Errorf("period %v: %v", period, err)
		}
		want := bandwidth{period.Microseconds() / 2, period.Microseconds()}
		if got, _ := m.tree.limits(path); got != want {
			t.Errorf("period %v: %+v, want %+v", period, got, want)
		}
	}
}
