// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// TestProtectedMemory: with TieredReservation, the cgroups of pods and those above them protect what pods request.
func TestProtectedMemory(t *testing.T) {
	root := tree(t, map[string]string{"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory", "k/cgroup.subtree_control": "cpu memory", "k/burstable/cgroup.subtree_control": "cpu memory", "k/besteffort/cgroup.subtree_control": "cpu memory"})
	m := newIn(root, "/k")
	if err := m.ProtectMemory(criconfig.MemoryQoS{Unified: true, Enabled: true, Reserve: true, PageSize: 4096}); err != nil {
		t.Fatal(err)
	}
	guaranteed, burstable := podWith("g", list("500m", "64Ki"), list("500m", "64Ki")), podWith("b", list("250m", "8Ki"), nil)
	active := []*v1.Pod{guaranteed, burstable, podWith("e", nil, nil)}
	m.Active = func() []*v1.Pod { return slices.Clone(active) }
	for _, p := range active {
		if _, err := m.Ensure(p); err != nil {
			t.Fatal(err)
		}
	}
	settings := func() map[string]string {
		found := map[string]string{}
		for path, value := range files(t, root) {
			if name := filepath.Base(path); name == memoryMinFile || name == memoryLowFile {
				found[path] = value
			}
		}
		return found
	}
	want := map[string]string{
		"k/memory.min": "73728", "k/memory.low": "8192", "k/burstable/memory.low": "8192",
		"k/podg/memory.min": "65536", "k/burstable/podb/memory.low": "8192",
	}
	if diff := cmp.Diff(want, settings()); diff != "" {
		t.Errorf("protected (-want +got):\n%s", diff)
	}
	if never, last := m.Protected(); never != 64<<10 || last != 8<<10 {
		t.Errorf("protected %d and %d bytes", never, last)
	}
	// The kernel removes the files of a cgroup.
	if err := os.RemoveAll(filepath.Join(root, "k/podg")); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(guaranteed.UID); err != nil {
		t.Fatal(err)
	}
	want["k/memory.min"] = "8192"
	delete(want, "k/podg/memory.min")
	if diff := cmp.Diff(want, settings()); diff != "" {
		t.Errorf("after the removal of a pod (-want +got):\n%s", diff)
	}
	// An agent that does not protect memory resets what this one protected above pods.
	next := newIn(root, "/k")
	if err := next.ProtectMemory(criconfig.MemoryQoS{Unified: true, Enabled: true}); err != nil {
		t.Fatal(err)
	}
	got := settings()
	if got["k/memory.min"] != "0" || got["k/memory.low"] != "0" || got["k/burstable/memory.low"] != "0" {
		t.Errorf("not reset: %v", got)
	}
	if never, last := next.Protected(); never != 0 || last != 0 {
		t.Errorf("protected %d and %d bytes", never, last)
	}
}

const (
	memoryMinFile = "memory.min"
	memoryLowFile = "memory.low"
)

// TestHugePages: a pod is limited to the huge pages that it requests, and to none of other sizes.
func TestHugePages(t *testing.T) {
	p := podWith("p", list("500m", "64Mi"), list("500m", "64Mi"))
	for _, resources := range []v1.ResourceList{p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits} {
		resources["hugepages-2Mi"] = resource.MustParse("4Mi")
	}
	for name, test := range map[string]struct {
		have map[string]string
		want map[string]string
	}{
		"version 1": {
			map[string]string{"cpu/tasks": "", "memory/tasks": "", "hugetlb/k/podp/hugetlb.2MB.limit_in_bytes": "", "hugetlb/k/podp/hugetlb.1GB.limit_in_bytes": ""},
			map[string]string{"hugetlb/k/podp/hugetlb.2MB.limit_in_bytes": "4194304", "hugetlb/k/podp/hugetlb.1GB.limit_in_bytes": "0"},
		},
		"version 2": {
			map[string]string{
				"cgroup.controllers": "cpu memory hugetlb", "cgroup.subtree_control": "cpu memory hugetlb", "k/cgroup.subtree_control": "cpu memory hugetlb",
				"k/podp/hugetlb.2MB.max": "", "k/podp/hugetlb.2MB.rsvd.max": "", "k/podp/hugetlb.1GB.max": "",
			},
			map[string]string{"k/podp/hugetlb.2MB.max": "4194304", "k/podp/hugetlb.2MB.rsvd.max": "4194304", "k/podp/hugetlb.1GB.max": "0"},
		},
	} {
		root := tree(t, test.have)
		m := newIn(root, "/k")
		m.PageSizes = []int64{1 << 30, 2 << 20}
		if _, err := m.Ensure(p); err != nil {
			t.Fatal(name, err)
		}
		got := map[string]string{}
		for file := range test.want {
			data, err := os.ReadFile(filepath.Join(root, file))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			got[file] = string(data)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestShares: the burstable level has the shares of its active pods' requests, also of those that another agent started, and
// the best-effort level has the least.
func TestShares(t *testing.T) {
	root := tree(t, map[string]string{"cpu/tasks": "", "memory/tasks": ""})
	m := newIn(root, "/k")
	old := podWith("old", list("500m", ""), nil)
	active := []*v1.Pod{old, podWith("g", list("1", "1Mi"), list("1", "1Mi")), podWith("e", nil, nil)}
	m.Active = func() []*v1.Pod { return slices.Clone(active) }
	step := func(name, want string, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for level, want := range map[string]string{burstable: want, bestEffort: "2"} {
			if got, err := read(filepath.Join(root, "cpu/k", level), "cpu.shares"); got != want || err != nil {
				t.Errorf("%s: level %s has %q shares, %v, want %s", name, level, got, err, want)
			}
		}
	}
	ensure := func(p *v1.Pod) func() error {
		return func() error { _, err := m.Ensure(p); return err }
	}
	step("the first pod after a restart", "768", ensure(podWith("new", list("250m", ""), nil)))
	active = append(active, podWith("new", list("250m", ""), nil))
	step("a pod that is resized", "1024", ensure(podWith("new", list("500m", ""), nil)))
	step("a pod that is removed while it is active", "512", func() error {
		_ = m.Remove("new") // the files cannot be removed like a cgroup
		return nil
	})
	active = []*v1.Pod{old}
	step("its pods have ended", "512", m.Share)
	active = nil
	step("no pods", "2", m.Share)
	if err := os.WriteFile(filepath.Join(root, "cpu/k", burstable, "cpu.shares"), []byte("7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Share(); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(filepath.Join(root, "cpu/k", burstable), "cpu.shares"); got != "7" {
		t.Errorf("shares that have not changed were written: %s", got)
	}
}
