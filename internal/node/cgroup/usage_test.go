// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		name         string
		files        map[string]string
		pod, machine Usage
	}{
		{"version 2", map[string]string{
			"cgroup.controllers":               "cpu memory",
			"cgroup.subtree_control":           "cpu memory",
			"k/cgroup.subtree_control":         "cpu memory",
			"cpu.stat":                         "usage_usec 2000000\nuser_usec 1\n",
			"memory.stat":                      "anon 100\nfile 50\nkernel 9\ninactive_file 20\n",
			"k/besteffort/podu/cpu.stat":       "usage_usec 1500\nuser_usec 1000\n",
			"k/besteffort/podu/memory.stat":    "anon 1\nfile 40\ninactive_file 30\n",
			"k/besteffort/podu/memory.current": "70\n",
			"k/besteffort/podu/memory.max":     "90\n",
		}, Usage{1500 * time.Microsecond, 40}, Usage{2 * time.Second, 130}},
		{"version 1", map[string]string{
			"cpu/tasks": "", "memory/tasks": "",
			"cpuacct/cpuacct.usage":                          "2000000000\n",
			"memory/memory.usage_in_bytes":                   "150\n",
			"memory/memory.stat":                             "inactive_file 1\ntotal_inactive_file 20\n",
			"cpuacct/k/besteffort/podu/cpuacct.usage":        "1500000\n",
			"memory/k/besteffort/podu/memory.usage_in_bytes": "70\n",
			"memory/k/besteffort/podu/memory.stat":           "total_inactive_file 80\n",
			"memory/k/besteffort/podu/memory.limit_in_bytes": "90\n",
		}, Usage{1500 * time.Microsecond, 0}, Usage{2 * time.Second, 130}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := tree(t, test.files)
			if got, err := newIn(root, "/k").Usage(podWith("u", nil, nil)); err != nil || got != test.pod {
				t.Errorf("pod: got %v, %v, want %v", got, err, test.pod)
			}
			if used, limit, err := newIn(root, "/k").Memory(podWith("u", nil, nil)); err != nil || used != 70 || limit != 90 {
				t.Errorf("memory: %d of %d, %v", used, limit, err)
			}
			if got, err := machineUsageIn(root); err != nil || got != test.machine {
				t.Errorf("machine: got %v, %v, want %v", got, err, test.machine)
			}
		})
	}
}

func TestUsageIsUnknown(t *testing.T) {
	if used, limit, err := (&Manager{}).Memory(podWith("u", nil, nil)); used != 0 || limit != 0 || err != nil {
		t.Errorf("without a parent: %d of %d, %v", used, limit, err)
	}
	if _, err := (&Manager{}).Usage(podWith("u", nil, nil)); !errors.Is(err, ErrNone) {
		t.Errorf("without a parent: %v", err)
	}
	root := tree(t, map[string]string{"cpu/tasks": "", "memory/tasks": "", "cpuacct/cpuacct.usage": "much"})
	if _, err := newIn(root, "/k").Usage(podWith("gone", nil, nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a pod without cgroup: %v", err)
	}
	if _, err := machineUsageIn(root); err == nil {
		t.Error("a counter that is no number was read")
	}
	if _, err := machineUsageIn(t.TempDir()); err == nil {
		t.Error("usage without cgroups")
	}
}
