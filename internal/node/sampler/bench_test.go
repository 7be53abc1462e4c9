// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/cgroup"
)

// BenchmarkSummary measures /stats/summary of 110 pods in cgroups of this machine, each with a sandbox and a container
// in which a process sleeps. The requirement is 50 ms.
func BenchmarkSummary(b *testing.B) {
	s := samplerOf110Pods(b)
	for b.Loop() {
		summary, err := s.Summary(context.Background(), false)
		if err != nil || len(summary.Pods) != 110 || summary.Pods[109].Network == nil {
			b.Fatalf("%+v, %v", summary, err)
		}
		if _, err := json.Marshal(summary); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkContainers measures a scrape of /metrics/cadvisor of the same pods.
func BenchmarkContainers(b *testing.B) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(samplerOf110Pods(b).Containers(Machine{}))
	for b.Loop() {
		if families, err := registry.Gather(); err != nil || len(families) == 0 {
			b.Fatal(families, err)
		}
	}
}

func samplerOf110Pods(b *testing.B) *Sampler {
	b.Helper()
	manager, err := cgroup.New(fmt.Sprintf("/kindred-bench-%d", os.Getpid()), cgroup.Cgroupfs)
	if err != nil || manager.Parent() == "" {
		b.Skip("cgroups cannot be written")
	}
	b.Cleanup(func() { removeCgroups(b, manager.Parent()) })
	var pods []Pod
	for i := range 110 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))}}
		p.Spec.Containers = []v1.Container{{Name: "c"}}
		path, err := manager.Ensure(p)
		if err != nil {
			b.Fatal(err)
		}
		for _, id := range []string{"sandbox", "id"} {
			sleepIn(b, filepath.Join(path, id))
		}
		pods = append(pods, Pod{Pod: p, Sandbox: "sandbox", Containers: []Container{{Name: "c", ID: "id", Started: time.Unix(1, 0)}}})
	}
	s := New(Options{
		Node: "n", RootDir: b.TempDir(), Memory: 1 << 30, Clock: clock.RealClock{}, Cgroups: manager, Runtime: noRuntime{}, Images: noRuntime{},
		Pods: func() []Pod { return pods }, Logs: func(*v1.Pod, string) string { return "" }, Volumes: func(types.UID) []Volume { return nil },
	})
	s.keepBase(b.Context())
	s.measureDisk(b.Context())
	return s
}

// hierarchies are the cgroup file systems of this machine.
func hierarchies() []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	var roots []string
	for _, file := range v1 {
		if name := filepath.Base(filepath.Dir(file)); name == "cpu" || name == "cpuacct" || name == "memory" || name == "pids" {
			roots = append(roots, filepath.Dir(file))
		}
	}
	if len(roots) == 0 {
		return []string{"/sys/fs/cgroup"}
	}
	return roots
}

func sleepIn(b *testing.B, path string) {
	b.Helper()
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for _, root := range hierarchies() {
		dir := filepath.Join(root, path)
		pid := strconv.Itoa(command.Process.Pid)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o600)); err != nil {
			b.Fatal(err)
		}
	}
}

// removeCgroups removes the cgroups below a parent, leaves first.
func removeCgroups(b *testing.B, parent string) {
	for _, root := range hierarchies() {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(root, parent), func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil {
				b.Error(err)
			}
		}
	}
}
