// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/config"
)

func quantities(list v1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range list {
		out[string(name)] = quantity.String()
	}
	return out
}

// TestCapacity: what is allocatable is the capacity without reservations, hard thresholds and huge pages.
func TestCapacity(t *testing.T) {
	m := machine{cpus: 2, memory: 1 << 30, disk: 1000, hugePages: map[string]int64{"2Mi": 4 << 20}}
	for _, test := range []struct {
		name   string
		change func(*config.Configuration)
		want   map[string]string
	}{
		{"defaults", func(*config.Configuration) {}, map[string]string{
			"cpu": "2", "memory": "920Mi", "ephemeral-storage": "950", "pods": "110", "hugepages-2Mi": "4Mi"}},
		{"reservations", func(c *config.Configuration) {
			c.KubeReserved = map[string]string{"cpu": "500m", "memory": "20Mi", "pid": "100"}
			c.SystemReserved = map[string]string{"cpu": "1", "memory": "100Mi", "ephemeral-storage": "50"}
			c.MaxPods = 7
		}, map[string]string{"cpu": "500m", "memory": "800Mi", "ephemeral-storage": "900", "pods": "7", "hugepages-2Mi": "4Mi"}},
		{"reserved CPUs", func(c *config.Configuration) {
			c.KubeReserved = map[string]string{"cpu": "500m"}
			c.ReservedSystemCPUs = "1"
		}, map[string]string{"cpu": "1", "memory": "920Mi", "ephemeral-storage": "950", "pods": "110", "hugepages-2Mi": "4Mi"}},
		{"thresholds", func(c *config.Configuration) {
			c.EvictionHard = map[string]string{"memory.available": "50%", "nodefs.inodesFree": "5%"}
			c.EvictionSoft = map[string]string{"nodefs.available": "50%"}
			c.EvictionSoftGracePeriod = map[string]string{"nodefs.available": "1m"}
		}, map[string]string{"cpu": "2", "memory": "508Mi", "ephemeral-storage": "1k", "pods": "110", "hugepages-2Mi": "4Mi"}},
		{"local storage is not isolated", func(c *config.Configuration) { c.LocalStorageCapacityIsolation = new(bool) }, map[string]string{
			"cpu": "2", "memory": "920Mi", "pods": "110", "hugepages-2Mi": "4Mi"}},
	} {
		c := config.Default()
		test.change(c)
		_, allocatable := m.capacity(c)
		if diff := cmp.Diff(test.want, quantities(allocatable)); diff != "" {
			t.Errorf("%s: allocatable (-want +got):\n%s", test.name, diff)
		}
		if err := m.checkReservation(c); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	capacity, _ := m.capacity(config.Default())
	want := map[string]string{"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1k", "pods": "110", "hugepages-2Mi": "4Mi"}
	if diff := cmp.Diff(want, quantities(capacity)); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	c := config.Default()
	c.KubeReserved = map[string]string{"memory": "1Gi"}
	if err := m.checkReservation(c); err == nil || err.Error() != "kubeReserved, systemReserved and evictionHard reserve 1124Mi of memory, and the machine has 1Gi" {
		t.Errorf("more than the machine has: %v", err)
	}
}

// TestPodLimits: what is reserved is kept from all pods together, if that is enforced.
func TestPodLimits(t *testing.T) {
	m := machine{cpus: 2, memory: 1 << 30}
	c := config.Default()
	c.KubeReserved, c.SystemReserved = map[string]string{"pid": "100", "memory": "24Mi"}, map[string]string{"pid": "200", "cpu": "500m"}
	for enforced, want := range map[string][3]int64{"pods": {1500, 1000 << 20, 700}, "none": {2000, 1 << 30, 1000}} {
		c.EnforceNodeAllocatable = []string{enforced}
		got := m.podLimits(c, 1000)
		processes := got[pids]
		if has := [3]int64{got.Cpu().MilliValue(), got.Memory().Value(), processes.Value()}; has != want {
			t.Errorf("%s: %v, want %v", enforced, has, want)
		}
	}
}

// TestProcesses reads numbers of threads.
func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	for name, content := range map[string]string{
		"sys/kernel/pid_max": "32768\n", "sys/kernel/threads-max": "1000\n", "loadavg": "0.20 0.18 0.12 1/80 11206\n",
	} {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if running, most, err := processes(proc); running != 80 || most != 1000 || err != nil {
		t.Errorf("%d of %d, %v", running, most, err)
	}
	if running, most, err := processes("/proc"); err != nil || running < 1 || most <= running {
		t.Errorf("this machine: %d of %d, %v", running, most, err)
	}
	if _, _, err := processes(t.TempDir()); err == nil {
		t.Error("processes without /proc")
	}
}

func TestOrdinaryMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		huge map[string]int64
		want int64
	}{
		"no huge pages":         {nil, 1 << 30},
		"two sizes":             {map[string]int64{"2Mi": 4 << 20, "1Gi": 512 << 20}, 1<<30 - 516<<20},
		"more than there is":    {map[string]int64{"1Gi": 2 << 30}, 0},
		"a size without a page": {map[string]int64{"1Gi": 0}, 1 << 30},
	} {
		if got := (machine{memory: 1 << 30, hugePages: tc.huge}).ordinaryMemory(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestLimitPods(t *testing.T) {
	for name, tc := range map[string]struct{ maxPods, perCore, want int32 }{
		"no limit for each core": {110, 0, 110}, "a smaller one": {110, 10, 20}, "a larger one": {110, 100, 110},
	} {
		c := config.Default()
		c.MaxPods, c.PodsPerCore = tc.maxPods, tc.perCore
		if got := (machine{cpus: 2}).limitPods(c).MaxPods; got != tc.want {
			t.Errorf("%s: %d pods, want %d", name, got, tc.want)
		}
		if c.MaxPods != tc.maxPods {
			t.Errorf("%s: the configuration of the file was changed", name)
		}
	}
}
