// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"testing"
)

// TestLimitPods: all pods together get a limit, and what they use is compared with it.
func TestLimitPods(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"version 1": {
			"cpu/tasks": "", "memory/tasks": "", "cpuacct/k/cpuacct.usage": "1\n", "memory/k/memory.usage_in_bytes": "70\n",
			"memory/k/memory.stat": "total_inactive_file 30\n", "pids/k/besteffort/podu/pids.current": "7\n",
		},
		"version 2": {
			"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids", "k/cgroup.subtree_control": "",
			"k/cpu.stat": "usage_usec 1\n", "k/memory.stat": "anon 40\nfile 30\ninactive_file 30\n", "k/memory.current": "70\n",
			"k/besteffort/cgroup.subtree_control": "", "k/besteffort/podu/pids.current": "7\n",
		},
	} {
		m := newIn(tree(t, files), "/k")
		if _, _, err := m.PodsMemory(); err == nil {
			t.Errorf("%s: pods have a limit before it is set", name)
		}
		if limited, err := m.LimitPods(1500, 100, 900); !limited || err != nil {
			t.Errorf("%s: limited %t, %v", name, limited, err)
		}
		if used, limit, err := m.PodsMemory(); used != 40 || limit != 100 || err != nil {
			t.Errorf("%s: %d of %d, %v", name, used, limit, err)
		}
		if got, err := read(m.tree.pids("/k"), "pids.max"); got != "900" || err != nil {
			t.Errorf("%s: all pods may have %q processes, %v", name, got, err)
		}
		m.PodPIDs = 64
		path, err := m.Ensure(podWith("u", nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(m.tree.pids(path), "pids.max"); got != "64" || err != nil {
			t.Errorf("%s: the pod may have %q processes, %v", name, got, err)
		}
		if n, err := m.Processes(m.Path(podWith("u", nil, nil))); n != 7 || err != nil {
			t.Errorf("%s: %d processes, %v", name, n, err)
		}
	}
	none := &Manager{}
	if limited, err := none.LimitPods(1, 1, 1); limited || err != nil {
		t.Errorf("without cgroups: limited %t, %v", limited, err)
	}
	if _, _, err := none.PodsMemory(); !errors.Is(err, ErrNone) {
		t.Errorf("without cgroups: %v", err)
	}
}
