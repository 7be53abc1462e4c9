// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

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
