// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestPods(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"version 1": {
			"cpu/tasks": "", "memory/tasks": "", "cpu/k/podg/tasks": "", "memory/k/burstable/podb/tasks": "",
			"pids/k/besteffort/podp/c/tasks": "", "cpu/k/other/tasks": "", "cpu/podelsewhere/tasks": "",
		},
		"version 2": {
			"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory", "k/cgroup.subtree_control": "cpu memory",
			"k/podg/cpu.max": "", "k/burstable/podb/cpu.max": "", "k/besteffort/podp/c/cpu.max": "", "k/podfile": "", "podelsewhere/x": "",
		},
	} {
		pods, err := newIn(tree(t, files), "/k").Pods()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]types.UID{"b", "g", "p"}, pods); diff != "" {
			t.Errorf("%s: pods (-want +got):\n%s", name, diff)
		}
	}
	if pods, err := (&Manager{}).Pods(); len(pods) > 0 || err != nil {
		t.Errorf("pods %v, %v without cgroups", pods, err)
	}
}

// TestDestroyKills: in each layout, all processes of the pod end.
func TestDestroyKills(t *testing.T) {
	for name, dirs := range map[string][2]string{
		"version 1": {"cpu/k/podu", "memory/k/podu/container"},
		"version 2": {"k/podu", "k/podu/container"},
	} {
		files := map[string]string{"cpu/tasks": "", "memory/tasks": ""}
		if name == "version 2" {
			files = map[string]string{"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory", "k/cgroup.subtree_control": "cpu memory"}
		}
		var processes []*exec.Cmd
		for _, dir := range dirs {
			process := exec.Command("sleep", "1000")
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			processes = append(processes, process)
			files[dir+"/cgroup.procs"] = fmt.Sprintf("0\n%d\n", process.Process.Pid)
		}
		_ = newIn(tree(t, files), "/k").Destroy("u") // the files cannot be removed like a cgroup
		for _, process := range processes {
			ended := make(chan error, 1)
			go func() { ended <- process.Wait() }()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: a process still runs", name)
				_ = process.Process.Kill()
			}
		}
	}
}

// TestDestroyInKernel: a real cgroup with a process in its child is removed.
func TestDestroyInKernel(t *testing.T) {
	m, process := inKernel(t)
	_ = m.Destroy("u")
	_ = process.Wait()
	if err := m.Destroy("u"); err != nil { // the next sweep
		t.Error(err)
	}
	if pods, err := m.Pods(); len(pods) > 0 || err != nil {
		t.Errorf("pods %v, %v are left", pods, err)
	}
}

// TestKillInKernel: only the processes of the container are killed.
func TestKillInKernel(t *testing.T) {
	m, process := inKernel(t)
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	if err := errors.Join(m.Kill("u", "other"), m.Kill("v", "child"), m.Kill("u", "")); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
		t.Fatal("the process of another container was killed")
	case <-time.After(50 * time.Millisecond):
	}
	if err := m.Kill("u", "child"); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the process still runs")
	}
	if err := m.Destroy("u"); err != nil {
		t.Error(err)
	}
}

// inKernel returns a manager of real cgroups, with a pod u, and a process in the pod's cgroup "child".
func inKernel(t *testing.T) (*Manager, *exec.Cmd) {
	t.Helper()
	parent := fmt.Sprintf("/kindred-test-%d", os.Getpid())
	m := newIn("/sys/fs/cgroup", parent)
	if m.tree == nil {
		t.Skip("cgroups cannot be written")
	}
	t.Cleanup(func() { _ = m.tree.remove(parent) })
	if _, err := m.Ensure(podWith("u", nil, nil)); err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill() })
	child := filepath.Join(m.path("BestEffort", "u"), "child")
	if err := m.tree.create(child, nil); err != nil {
		t.Fatal(err)
	}
	for _, dir := range m.tree.dirs(child) {
		// Version 1 has the cgroup only for some of the controllers.
		if _, err := os.Stat(dir); err == nil {
			if err := write(dir, "cgroup.procs", fmt.Sprint(process.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m, process
}
