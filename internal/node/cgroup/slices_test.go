// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// fakeSystemd creates the directories of slices, and records what is set.
type fakeSystemd struct {
	root    string
	set     map[string][]cgroups.Resources
	stopped []string
}

type fakeUnit struct {
	cgroups.Manager
	systemd *fakeSystemd
	config  *cgroups.Cgroup
}

func (s *fakeSystemd) unit(c *cgroups.Cgroup) (cgroups.Manager, error) {
	return fakeUnit{systemd: s, config: c}, nil
}

// dir returns the directory that systemd gives a slice.
func (u fakeUnit) dir() string {
	expanded, err := systemd.ExpandSlice(u.config.Name)
	if err != nil {
		panic(err)
	}
	parent, err := systemd.ExpandSlice(u.config.Parent)
	if err != nil || path.Dir(expanded) != parent {
		panic("the parent of " + expanded + " is not " + u.config.Parent)
	}
	return filepath.Join(u.systemd.root, expanded)
}

func (u fakeUnit) Apply(int) error { return os.MkdirAll(u.dir(), 0o755) }

func (u fakeUnit) Set(r *cgroups.Resources) error {
	u.systemd.set[u.config.Name] = append(u.systemd.set[u.config.Name], *r)
	return nil
}

func (u fakeUnit) Destroy() error {
	u.systemd.stopped = append(u.systemd.stopped, u.config.Name)
	return os.RemoveAll(u.dir())
}

func managerOfSlices(t *testing.T, tree func(root string) hierarchy) (*Manager, *fakeSystemd) {
	t.Helper()
	fake := &fakeSystemd{root: t.TempDir(), set: map[string][]cgroups.Resources{}}
	units := sliceUnits{tree(fake.root), fake.unit}
	m := &Manager{parent: units.join(units.join("/", "kindred-0a"), "pods"), tree: units, PodPIDs: 64}
	if err := units.create(m.parent, nil); err != nil {
		t.Fatal(err)
	}
	return m, fake
}

func unified(root string) hierarchy { return version2{root: root} }

// TestSlices: names are those of the kubelet, and limits are set on units, in the units of the cgroup version.
func TestSlices(t *testing.T) {
	m, fake := managerOfSlices(t, unified)
	burstable := podWith("4f-b", list("250m", ""), nil)
	m.Active = func() []*v1.Pod { return []*v1.Pod{burstable} }
	const parent = "/kindred_0a.slice/kindred_0a-pods.slice"
	for uid, want := range map[string]string{
		"4f-g": parent + "/kindred_0a-pods-pod4f_g.slice",
		"4f-b": parent + "/kindred_0a-pods-burstable.slice/kindred_0a-pods-burstable-pod4f_b.slice",
		"4f-e": parent + "/kindred_0a-pods-besteffort.slice/kindred_0a-pods-besteffort-pod4f_e.slice",
	} {
		pod := podWith(uid, nil, nil)
		switch uid {
		case "4f-g":
			pod = podWith(uid, list("500m", "64Mi"), list("500m", "64Mi"))
		case "4f-b":
			pod = burstable
		}
		if got, err := m.Ensure(pod); got != want || err != nil {
			t.Errorf("pod %s is in %q, %v, want %q", uid, got, err, want)
		}
	}
	pids := int64(64)
	want := map[string][]cgroups.Resources{
		"kindred_0a-pods-pod4f_g.slice": {
			{CpuWeight: 20, CpuQuota: 50000, CpuPeriod: 100000, Memory: 64 << 20}, {PidsLimit: &pids},
		},
		"kindred_0a-pods-burstable.slice":          {{CpuWeight: 10}},
		"kindred_0a-pods-besteffort.slice":         {{CpuWeight: 1}},
		"kindred_0a-pods-burstable-pod4f_b.slice":  {{CpuWeight: 10}, {PidsLimit: &pids}},
		"kindred_0a-pods-besteffort-pod4f_e.slice": {{CpuWeight: 1}, {PidsLimit: &pids}},
	}
	if diff := cmp.Diff(want, fake.set, cmpopts.IgnoreFields(cgroups.Resources{}, "SkipDevices", "SkipFreezeOnSet")); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	pods, err := m.Pods()
	if diff := cmp.Diff([]types.UID{"4f-b", "4f-e", "4f-g"}, pods); diff != "" || err != nil {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
	if err := m.Remove("4f-b"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"kindred_0a-pods-burstable-pod4f_b.slice"}, fake.stopped); diff != "" {
		t.Errorf("stopped units (-want +got):\n%s", diff)
	}
}

// TestSlicesOfVersion1: version 1 has shares, not weights, and Grow does not lower a limit.
func TestSlicesOfVersion1(t *testing.T) {
	m, fake := managerOfSlices(t, func(root string) hierarchy {
		return version1{cpu: root, memory: root, all: []string{root}}
	})
	m.PodPIDs = 0
	pod := podWith("g", list("500m", "64Mi"), list("500m", "64Mi"))
	slice, err := m.Ensure(pod)
	if err != nil {
		t.Fatal(err)
	}
	for file, limit := range map[string]string{"cpu.cfs_quota_us": "70000", "memory.limit_in_bytes": "67108864"} {
		if err := write(filepath.Join(fake.root, slice), file, limit); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Grow(pod); err != nil {
		t.Fatal(err)
	}
	want := []cgroups.Resources{{CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000, Memory: 64 << 20}, {CpuShares: 512, Memory: 64 << 20}}
	if diff := cmp.Diff(want, fake.set[path.Base(slice)], cmpopts.IgnoreFields(cgroups.Resources{}, "SkipDevices", "SkipFreezeOnSet")); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// TestSliceNames: the path is the one that systemd gives the unit, and split is the inverse of join.
func TestSliceNames(t *testing.T) {
	var units sliceUnits
	parent := "/"
	for _, name := range []string{"kindred-0a", "pods", "burstable", "pod4f0c-11-x"} {
		child := units.join(parent, name)
		if expanded, err := systemd.ExpandSlice(path.Base(child)); expanded != child || err != nil {
			t.Errorf("systemd has %s as %q, %v", child, expanded, err)
		}
		if got, ok := units.split(parent, path.Base(child)); parent != "/" && (got != name || !ok) {
			t.Errorf("%s is child %q, %t of %s", child, got, ok, parent)
		}
		parent = child
	}
	for _, entry := range []string{"cri-containerd-01.scope", "a-pod1", "b-pod1.slice", "cgroup.procs"} {
		if name, ok := units.split("/a.slice", entry); ok {
			t.Errorf("%s is child %q", entry, name)
		}
	}
}

// TestSystemdIsNeeded: no pod runs in a cgroup that systemd does not know.
func TestSystemdIsNeeded(t *testing.T) {
	if systemd.IsRunningSystemd() {
		t.Skip("systemd runs")
	}
	if _, err := New("/k", Systemd); err == nil || !strings.Contains(err.Error(), "not booted with systemd") {
		t.Errorf("error %v", err)
	}
}

// TestSlicesProtectMemory: the settings of MemoryQoS and the limits of huge pages are set on units as well.
func TestSlicesProtectMemory(t *testing.T) {
	m, fake := managerOfSlices(t, unified)
	m.PodPIDs, m.PageSizes = 0, []int64{2 << 20}
	if err := m.ProtectMemory(criconfig.MemoryQoS{Unified: true, Enabled: true, Reserve: true, PageSize: 4096}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Ensure(podWith("b", list("250m", "8Ki"), nil)); err != nil {
		t.Fatal(err)
	}
	want := map[string][]cgroups.Resources{
		"kindred_0a-pods.slice": {
			{Unified: map[string]string{"memory.min": "8192", "memory.low": "8192"}},
		},
		"kindred_0a-pods-burstable.slice":  {{CpuWeight: 10, Unified: map[string]string{"memory.low": "8192"}}},
		"kindred_0a-pods-besteffort.slice": {{CpuWeight: 1}},
		"kindred_0a-pods-burstable-podb.slice": {{
			CpuWeight: 10, Unified: map[string]string{"memory.low": "8192"}, HugetlbLimit: []*cgroups.HugepageLimit{{Pagesize: "2MB"}},
		}},
	}
	if diff := cmp.Diff(want, fake.set, cmpopts.IgnoreFields(cgroups.Resources{}, "SkipDevices", "SkipFreezeOnSet")); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}
