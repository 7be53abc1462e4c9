// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kindred-project/kindred/internal/node/config"
	"github.com/kindred-project/kindred/internal/node/topology"
)

// boundaries has what was counted, by result, scope and boundary.
type boundaries map[string]int

func (b boundaries) CPUsPinned(error)                      {}
func (b boundaries) MemoryPinned(error)                    {}
func (b boundaries) PodAligned(time.Duration, error)       {}
func (b boundaries) Aligned(scope, boundary string, n int) { b["is "+scope+" "+boundary] += n }
func (b boundaries) NotAligned(scope, boundary string, n int) {
	b["not "+scope+" "+boundary] += n
}

// TestBoundariesAreCounted: two nodes have a cache and four CPUs each, of which the first is reserved.
func TestBoundariesAreCounted(t *testing.T) {
	cpus := func(is, not, cache int) boundaries {
		return boundaries{"is container physical_cpu": is, "not container physical_cpu": not, "is container uncore_cache": cache}
	}
	nodes := func(isContainer, notContainer, isPod, notPod int) boundaries {
		return boundaries{
			"is container numa_node": isContainer, "not container numa_node": notContainer, "is pod numa_node": isPod, "not pod numa_node": notPod,
		}
	}
	fullCores := func(c *config.Configuration) {
		c.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"}
	}
	aligned := func(policy, scope string) func(*config.Configuration) {
		return func(c *config.Configuration) {
			c.CPUManagerPolicy, c.TopologyManagerPolicy, c.TopologyManagerScope = "none", policy, scope
		}
	}
	two, four := want{"2", 2, 10, 0}, want{"4", 4, 10, 0}
	none, tooLarge := want{"0", 0, 0, 0}, want{"large", 1, 1001, 0}
	for name, test := range map[string]struct {
		config func(*config.Configuration)
		pods   [][]want
		want   boundaries
	}{
		"no policy":           {aligned(topology.None, topology.ContainerScope), [][]want{{two}}, boundaries{}},
		"nothing yet":         {func(*config.Configuration) {}, nil, cpus(0, 0, 0)},
		"no CPUs":             {fullCores, [][]want{{none}}, cpus(0, 0, 0)},
		"one cache":           {func(*config.Configuration) {}, [][]want{{two, four}}, cpus(0, 0, 2)},
		"two caches":          {func(*config.Configuration) {}, [][]want{{want{"5", 5, 10, 0}}}, cpus(0, 0, 0)},
		"too many":            {func(*config.Configuration) {}, [][]want{{want{"8", 8, 10, 0}}}, cpus(0, 0, 0)},
		"full cores":          {fullCores, [][]want{{two}, {four}}, cpus(2, 0, 2)},
		"half a core":         {fullCores, [][]want{{two, want{"1", 1, 10, 0}}}, cpus(1, 1, 1)},
		"too many cores":      {fullCores, [][]want{{want{"8", 8, 10, 0}}}, cpus(0, 1, 0)},
		"one node":            {aligned(topology.SingleNUMANode, topology.ContainerScope), [][]want{{two, none}}, nodes(2, 0, 0, 0)},
		"a container refused": {aligned(topology.SingleNUMANode, topology.ContainerScope), [][]want{{two, tooLarge}}, nodes(1, 1, 0, 0)},
		"pods":                {aligned(topology.SingleNUMANode, topology.PodScope), [][]want{{two, none}, {none}}, nodes(0, 0, 2, 0)},
		"a pod refused":       {aligned(topology.SingleNUMANode, topology.PodScope), [][]want{{two, tooLarge}}, nodes(0, 0, 0, 1)},
		"another policy":      {aligned(topology.Restricted, topology.PodScope), [][]want{{two}, {want{"larger", 1, 2000, 0}}}, nodes(0, 0, 0, 0)},
	} {
		got := boundaries{}
		b := newBed(t, test.config)
		b.observer = got
		for i := range b.machine.CPUs {
			b.machine.CPUs[i].Core = i / 2 * 2
		}
		m := b.agent()
		for i, containers := range test.pods {
			m.Assign(t.Context(), guaranteed(string(rune('a'+i)), containers...))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCPUsOfNodes(t *testing.T) {
	b := newBed(t, func(*config.Configuration) {})
	m := b.agent()
	b.assign(m, guaranteed("p", want{"1", 5, 10, 0}), nil)
	if diff := cmp.Diff(map[int]int{0: 1, 1: 4}, m.CPUsOfNodes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := m.Release("p"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]int{0: 0, 1: 0}, m.CPUsOfNodes()); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	b.config.CPUManagerPolicy = "none"
	if got := b.agent().CPUsOfNodes(); got != nil {
		t.Errorf("without the policy: %v", got)
	}
}
