// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podWith(uid string, requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}}},
	}
}

func list(cpu, memory string) v1.ResourceList {
	out := v1.ResourceList{}
	if cpu != "" {
		out[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

// files returns the content of all files below a directory.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || info.Name() == "tasks" || strings.HasPrefix(info.Name(), "cgroup.") {
			return err
		}
		data, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, root+"/")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestVersion1(t *testing.T) {
	root := t.TempDir()
	for _, controller := range []string{"cpu", "memory"} {
		if err := os.MkdirAll(filepath.Join(root, controller), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, controller, "tasks"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newIn(root, "/k")
	var active []*v1.Pod
	m.Active = func() []*v1.Pod { return slices.Clone(active) }
	for _, test := range []struct {
		pod  *v1.Pod
		want string
	}{
		{podWith("g", list("500m", "64Mi"), list("500m", "64Mi")), "/k/podg"},
		{podWith("b1", list("250m", ""), nil), "/k/burstable/podb1"},
		{podWith("b2", list("750m", ""), list("", "32Mi")), "/k/burstable/podb2"},
		{podWith("e", nil, nil), "/k/besteffort/pode"},
	} {
		got, err := m.Ensure(test.pod)
		if err != nil || got != test.want {
			t.Errorf("pod %s is in %q, %v, want %q", test.pod.UID, got, err, test.want)
		}
		active = append(active, test.pod)
	}
	want := map[string]string{
		"cpu/k/podg/cpu.shares":                          "512",
		"cpu/k/podg/cpu.cfs_quota_us":                    "50000",
		"cpu/k/podg/cpu.cfs_period_us":                   "100000",
		"memory/k/podg/memory.limit_in_bytes":            "67108864",
		"cpu/k/burstable/cpu.shares":                     "1024",
		"cpu/k/burstable/podb1/cpu.shares":               "256",
		"cpu/k/burstable/podb2/cpu.shares":               "768",
		"memory/k/burstable/podb2/memory.limit_in_bytes": "33554432",
		"cpu/k/besteffort/cpu.shares":                    "2",
		"cpu/k/besteffort/pode/cpu.shares":               "2",
	}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

func TestVersion2(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"", "k", "k/burstable", "k/besteffort"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "cgroup.subtree_control"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newIn(root, "/k")
	if got, err := m.Ensure(podWith("g", list("500m", "64Mi"), list("500m", "64Mi"))); err != nil || got != "/k/podg" {
		t.Errorf("the pod is in %q, %v", got, err)
	}
	want := map[string]string{"k/burstable/cpu.weight": "1", "k/besteffort/cpu.weight": "1", "k/podg/cpu.weight": "20", "k/podg/cpu.max": "50000 100000", "k/podg/memory.max": "67108864"}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if _, err := m.Grow(podWith("g", list("250m", "128Mi"), list("250m", "128Mi"))); err != nil {
		t.Fatal(err)
	}
	want["k/podg/cpu.weight"], want["k/podg/memory.max"] = "10", "134217728"
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("limits after Grow (-want +got):\n%s", diff)
	}
}

// TestObserve: each operation on the cgroup of a pod is reported, and ends.
func TestObserve(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Manager{parent: "/", tree: detectV2(root)}
	var begun, done []string
	m.Observe = func(operation string) func() {
		begun = append(begun, operation)
		return func() { done = append(done, operation) }
	}
	p := podWith("g", list("500m", "64Mi"), list("500m", "64Mi"))
	for range 2 {
		if _, err := m.Ensure(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "podg")); err != nil { // the kernel removes the files of a cgroup
		t.Fatal(err)
	}
	if err := m.Remove(p.UID); err != nil {
		t.Fatal(err)
	}
	want := []string{"create", "update", "destroy"}
	if !slices.Equal(begun, want) || !slices.Equal(done, want) {
		t.Errorf("begun %v, done %v, want %v", begun, done, want)
	}
}

// TestWeights checks the ends of both scales.
func TestWeights(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 39, 262144: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("%d shares are weight %d, want %d", shares, got, want)
		}
	}
}

// TestGrow: Grow raises limits, but neither lowers them nor sets a limit that was not set. Ensure does both.
func TestGrow(t *testing.T) {
	root := t.TempDir()
	for _, controller := range []string{"cpu", "memory"} {
		if err := os.MkdirAll(filepath.Join(root, controller), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, controller, "tasks"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newIn(root, "/k")
	limits := func() string {
		found := files(t, root)
		return found["cpu/k/podg/cpu.cfs_quota_us"] + " " + found["memory/k/podg/memory.limit_in_bytes"]
	}
	step := func(do func(*v1.Pod) (string, error), cpu, memory, want string) {
		t.Helper()
		if _, err := do(podWith("g", list(cpu, memory), list(cpu, memory))); err != nil {
			t.Fatal(err)
		}
		if got := limits(); got != want {
			t.Errorf("limits %q, want %q", got, want)
		}
	}
	step(m.Grow, "1", "1Ki", "100000 1024")
	step(m.Grow, "2", "2Ki", "200000 2048")
	step(m.Grow, "1", "4Ki", "200000 4096")
	step(m.Ensure, "1", "4Ki", "100000 4096")
	if err := os.WriteFile(filepath.Join(root, "cpu/k/podg/cpu.cfs_quota_us"), []byte("-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "memory/k/podg/memory.limit_in_bytes"), []byte("9223372036854771712\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	step(m.Grow, "1", "4Ki", "-1\n 9223372036854771712\n")
	step(m.Ensure, "1", "4Ki", "100000 4096")
}

func TestNoCgroups(t *testing.T) {
	m := newIn(t.TempDir(), "/k")
	path, err := m.Ensure(podWith("p", nil, nil))
	if path != "" || err != nil {
		t.Errorf("cgroup %q, %v without a cgroup hierarchy", path, err)
	}
	if err := m.Remove("p"); err != nil {
		t.Error(err)
	}
}
