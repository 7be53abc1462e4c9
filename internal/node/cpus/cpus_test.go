// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/kindred-project/kindred/internal/node/topology"
)

// machine has sockets, NUMA nodes of each, cores of each of these, and threads of each core. Second threads have the
// higher IDs. cacheCores cores share a cache; 0 is all of a node.
func machine(sockets, nodes, cores, threads, cacheCores int) *topology.Machine {
	m := &topology.Machine{}
	total := sockets * nodes * cores
	for thread := range threads {
		for c := range total {
			nodeID := c / cores
			first := nodeID * cores
			if cacheCores > 0 {
				first = c / cacheCores * cacheCores
			}
			m.CPUs = append(m.CPUs, topology.CPU{ID: c + thread*total, Core: c, Cache: first, Node: nodeID, Socket: nodeID / nodes})
		}
	}
	for id := range sockets * nodes {
		m.Nodes = append(m.Nodes, topology.Node{ID: id})
	}
	return m
}

func set(t *testing.T, text string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAllocate(t *testing.T) {
	full := Options{FullPCPUsOnly: true}
	for _, test := range []struct {
		name           string
		machine        *topology.Machine
		options        Options
		reserved       string
		n              int
		used, reusable string
		nodes          topology.Mask
		want           string // CPUs, or a part of the error
	}{
		{"a core", machine(1, 1, 4, 2, 0), Options{}, "0", 2, "", "", 0, "1,5"},
		{"a part of a core goes first", machine(1, 1, 4, 2, 0), Options{}, "0", 1, "", "", 0, "4"},
		{"a socket", machine(2, 1, 4, 1, 0), Options{}, "0", 4, "", "", 0, "4-7"},
		{"the fuller socket", machine(2, 1, 4, 1, 0), Options{}, "0", 2, "", "", 0, "1-2"},
		{"a socket of two NUMA nodes", machine(2, 2, 2, 1, 0), Options{}, "0", 4, "", "", 0, "4-7"},
		{"a NUMA node of a socket", machine(2, 2, 2, 1, 0), Options{}, "0", 2, "", "", 0, "2-3"},
		{"on a node", machine(2, 1, 4, 1, 0), Options{}, "0", 2, "", "", topology.MaskOf(1), "4-5"},
		{"more than the node has", machine(2, 1, 2, 1, 0), Options{}, "0", 3, "", "", topology.MaskOf(1), "1-3"},
		{"used", machine(1, 1, 4, 1, 0), Options{}, "0", 2, "1-2", "", 0, "requested=2, available=1"},
		{"reused", machine(1, 1, 4, 1, 0), Options{}, "0", 2, "2-3", "3", 0, "1,3"},
		{"fewer than reused", machine(1, 1, 4, 1, 0), Options{}, "0", 1, "2-3", "2-3", 0, "2"},
		{"full cores", machine(1, 1, 4, 2, 0), full, "0", 2, "", "", 0, "1,5"},
		{"half a core", machine(1, 1, 4, 2, 0), full, "0", 1, "", "", 0, "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"},
		{"the other half of the reserved core", machine(1, 1, 2, 2, 0), full, "0", 2, "1,3", "", 0,
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 2, CPUs per core = 2"},
		{"distributed", machine(2, 1, 4, 1, 0), Options{DistributeAcrossNUMA: true}, "0", 6, "", "", 0, "1-3,4-6"},
		{"distributed, fits in one", machine(2, 1, 4, 1, 0), Options{DistributeAcrossNUMA: true}, "0", 3, "", "", 0, "4-6"},
		{"packed instead", machine(2, 1, 4, 1, 0), Options{}, "0", 6, "", "", 0, "1-2,4-7"},
		{"one cache", machine(1, 1, 8, 1, 4), Options{PreferUncoreCache: true}, "0", 4, "", "", 0, "4-7"},
		{"the cache with least room", machine(1, 1, 8, 1, 4), Options{PreferUncoreCache: true}, "0", 2, "4", "", 0, "1-2"},
		{"no cache has enough", machine(1, 1, 8, 1, 4), Options{PreferUncoreCache: true}, "0", 4, "4", "", 0, "1-3,5"},
	} {
		p, err := New(test.machine, test.options, set(t, test.reserved), 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Allocate(test.n, set(t, test.used), set(t, test.reusable), test.nodes)
		if err != nil {
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %s", test.name, err, test.want)
			}
			continue
		}
		if !strings.Contains(test.want, "=") && got.Equals(set(t, test.want)) {
			continue
		}
		t.Errorf("%s: %s, want %s", test.name, got, test.want)
	}
}

// Whatever the machine, the options and what is used: n CPUs that were free, none reserved, full cores if the options
// say so; and n CPUs are found whenever as many are free.
func TestAllocateAnything(t *testing.T) {
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 2))
		m := machine(1+random.IntN(2), 1+random.IntN(2), 1+random.IntN(4), 1+random.IntN(2), random.IntN(3))
		options := Options{FullPCPUsOnly: random.IntN(3) == 0, DistributeAcrossNUMA: random.IntN(3) == 0, StrictReservation: random.IntN(2) == 0}
		options.PreferUncoreCache = !options.DistributeAcrossNUMA && random.IntN(2) == 0
		pick := func() cpuset.CPUSet {
			share := random.IntN(4)
			return m.Select(func(topology.CPU) bool { return random.IntN(4) < share })
		}
		p, err := New(m, options, cpuset.New(), 1)
		if err != nil {
			t.Fatal(err)
		}
		used := pick().Difference(p.reserved)
		reusable := used.Intersection(pick())
		if options.FullPCPUsOnly {
			used = m.SameCores(used).Difference(m.SameCores(p.reserved))
			reusable = m.SameCores(reusable).Intersection(used)
		}
		n := 1 + random.IntN(len(m.CPUs))
		got, err := p.Allocate(n, used, reusable, topology.Mask(random.Uint64())&m.NodeMask())
		free := p.Allocatable().Difference(used).Union(reusable)
		if options.FullPCPUsOnly {
			free = p.freeCores(used.Difference(reusable))
		}
		enough := free.Size() >= n && (!options.FullPCPUsOnly || n%m.CPUsPerCore() == 0)
		switch {
		case enough != (err == nil):
			t.Fatalf("seed %d: %d of %s: %v", seed, n, free, err)
		case err != nil:
			continue
		case got.Size() != n || !got.IsSubsetOf(free):
			t.Fatalf("seed %d: %d of %s: %s", seed, n, free, got)
		case n >= reusable.Size() && !reusable.IsSubsetOf(got):
			t.Fatalf("seed %d: %s does not have %s", seed, got, reusable)
		case options.FullPCPUsOnly && !m.SameCores(got).Equals(got):
			t.Fatalf("seed %d: %s are not full cores", seed, got)
		}
	}
}

// Each hint is a set of nodes that has the CPUs; the preferred ones are the smallest that could have them.
func TestHints(t *testing.T) {
	p, err := New(machine(2, 1, 4, 1, 0), Options{}, cpuset.New(0), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		n              int
		used, reusable string
		want           map[topology.Mask]bool
	}{
		{3, "", "", map[topology.Mask]bool{1: true, 2: true, 3: false}},
		{4, "", "", map[topology.Mask]bool{2: true, 3: false}},
		{4, "5", "", map[topology.Mask]bool{3: false}},
		{5, "", "", map[topology.Mask]bool{3: true}},
		{3, "1", "1", map[topology.Mask]bool{1: true, 3: false}},
		{8, "", "", map[topology.Mask]bool{}},
	} {
		got := map[topology.Mask]bool{}
		hints := p.Hints(test.n, set(t, test.used), set(t, test.reusable))
		if hints == nil {
			t.Error("no preference")
		}
		for _, h := range hints {
			got[h.Nodes] = h.Preferred
		}
		if len(got) != len(test.want) {
			t.Errorf("%d CPUs: %v, want %v", test.n, got, test.want)
		}
		for nodes, preferred := range test.want {
			if p, ok := got[nodes]; !ok || p != preferred {
				t.Errorf("%d CPUs: %v, want %v", test.n, got, test.want)
			}
		}
	}
}

func TestShared(t *testing.T) {
	for strict, want := range map[bool]string{false: "0-1,3", true: "1,3"} {
		p, err := New(machine(1, 1, 4, 1, 0), Options{StrictReservation: strict}, cpuset.New(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Shared(cpuset.New(2)); got.String() != want {
			t.Errorf("strict %v: %s, want %s", strict, got, want)
		}
	}
}

func TestNewErrors(t *testing.T) {
	m := machine(1, 1, 2, 1, 0)
	if _, err := New(m, Options{}, cpuset.New(), 0); err == nil || !strings.Contains(err.Error(), "greater than zero") {
		t.Error(err)
	}
	if _, err := New(m, Options{}, cpuset.New(), 3); err == nil || !strings.Contains(err.Error(), "requested=3, available=2") {
		t.Error(err)
	}
	if _, err := New(m, Options{}, cpuset.New(7), 0); err == nil || !strings.Contains(err.Error(), "not online: 7") {
		t.Error(err)
	}
}

func TestParseOptions(t *testing.T) {
	for _, test := range []struct {
		policy  string
		options map[string]string
		want    string
	}{
		{"fast", nil, `cpuManagerPolicy is "fast", and must be none or static`},
		{None, map[string]string{fullPCPUsOnly: "true"}, "cpuManagerPolicy none has no options"},
		{Static, map[string]string{"x": "true"}, `unknown CPU Manager Policy option: "x"`},
		{Static, map[string]string{"align-by-socket": "true"}, `Alpha-level Options not enabled, but option "align-by-socket" provided`},
		{Static, map[string]string{fullPCPUsOnly: "yes"}, `bad value for option "full-pcpus-only"`},
		{Static, map[string]string{preferUncoreCache: "true", distributeAcrossNUMA: "true"}, "can not be used at the same time"},
	} {
		if _, err := ParseOptions(test.policy, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	got, err := ParseOptions(Static, map[string]string{fullPCPUsOnly: "true", strictReservation: "false"})
	if want := (Options{FullPCPUsOnly: true}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRequested(t *testing.T) {
	pod := func(cpu string, change func(*v1.Pod)) *v1.Pod {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Mi")}
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}}}
		change(p)
		return p
	}
	same := func(*v1.Pod) {}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want int
	}{
		"whole":     {pod("2", same), 2},
		"millis":    {pod("2000m", same), 2},
		"fraction":  {pod("1500m", same), 0},
		"burstable": {pod("2", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }), 0},
		"pod-level": {pod("2", func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Limits: p.Spec.Containers[0].Resources.Limits}
		}), 0},
	} {
		if got := Requested(test.pod, &test.pod.Spec.Containers[0]); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
