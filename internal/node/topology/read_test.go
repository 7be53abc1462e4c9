// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// sysOf returns the /sys of a machine: sockets, NUMA nodes of a socket, cores of a node, threads of a core. The second
// threads have the higher IDs, as on x86.
func sysOf(sockets, nodesOfSocket, coresOfNode, threads int) fstest.MapFS {
	sys := fstest.MapFS{}
	file := func(text, format string, args ...any) {
		sys[fmt.Sprintf(format, args...)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	cores := sockets * nodesOfSocket * coresOfNode
	file(fmt.Sprintf("0-%d", cores*threads-1), "%s/online", cpuDir)
	for core := range cores {
		var siblings []string
		for thread := range threads {
			siblings = append(siblings, fmt.Sprint(core+thread*cores))
		}
		for _, id := range siblings {
			file(fmt.Sprint(core/(nodesOfSocket*coresOfNode)), "%s/cpu%s/topology/physical_package_id", cpuDir, id)
			file(strings.Join(siblings, ","), "%s/cpu%s/topology/core_cpus_list", cpuDir, id)
			file("1", "%s/cpu%s/cache/index0/level", cpuDir, id)
			file(strings.Join(siblings, ","), "%s/cpu%s/cache/index0/shared_cpu_list", cpuDir, id)
			file("3", "%s/cpu%s/cache/index3/level", cpuDir, id)
			file(cpusOf(core/coresOfNode, coresOfNode, threads, cores), "%s/cpu%s/cache/index3/shared_cpu_list", cpuDir, id)
		}
	}
	for node := range sockets * nodesOfSocket {
		file(cpusOf(node, coresOfNode, threads, cores), "%s/node%d/cpulist", nodeDir, node)
		file(fmt.Sprintf("Node %d MemTotal:    1048576 kB\nNode %d MemFree: 5 kB", node, node), "%s/node%d/meminfo", nodeDir, node)
		file("10 20", "%s/node%d/distance", nodeDir, node)
		file("3", "%s/node%d/hugepages/hugepages-2048kB/nr_hugepages", nodeDir, node)
	}
	return sys
}

func cpusOf(node, coresOfNode, threads, cores int) string {
	var ranges []string
	for thread := range threads {
		first := node*coresOfNode + thread*cores
		ranges = append(ranges, fmt.Sprintf("%d-%d", first, first+coresOfNode-1))
	}
	return strings.Join(ranges, ",")
}

func TestRead(t *testing.T) {
	m, err := Read(sysOf(2, 1, 2, 2), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &Machine{
		CPUs: []CPU{
			{0, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {2, 2, 2, 1, 1}, {3, 3, 2, 1, 1},
			{4, 0, 0, 0, 0}, {5, 1, 0, 0, 0}, {6, 2, 2, 1, 1}, {7, 3, 2, 1, 1},
		},
		Nodes: []Node{
			{0, 1 << 30, map[string]uint64{"hugepages-2Mi": 6 << 20}, []int{10, 20}},
			{1, 1 << 30, map[string]uint64{"hugepages-2Mi": 6 << 20}, []int{10, 20}},
		},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.CPUsPerCore() != 2 || m.Cores() != len(m.CPUs)/2 || m.Sockets() != 2 || m.NodeMask() != MaskOf(0, 1) || m.distance(MaskOf(0, 1)) != 15 {
		t.Errorf("%d CPUs of a core, %d cores, %d sockets, nodes %v, distance %v", m.CPUsPerCore(), m.Cores(), m.Sockets(), m.NodeMask(), m.distance(MaskOf(0, 1)))
	}
}

// A CPU that is offline is not one of the machine's, and is not the lowest of its core.
func TestReadOffline(t *testing.T) {
	sys := sysOf(1, 1, 2, 2)
	sys[cpuDir+"/online"].Data = []byte("1-3\n")
	m, err := Read(sys, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]CPU{{1, 1, 1, 0, 0}, {2, 2, 1, 0, 0}, {3, 1, 1, 0, 0}}, m.CPUs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A kernel without NUMA and without a topology: each CPU is a core of node 0.
func TestReadFlat(t *testing.T) {
	sys := fstest.MapFS{
		cpuDir + "/online": {Data: []byte("0-1\n")},
		hugeDir + "/hugepages-1048576kB/nr_hugepages": {Data: []byte("1\n")},
	}
	m, err := Read(sys, 5<<30)
	if err != nil {
		t.Fatal(err)
	}
	want := &Machine{
		CPUs:  []CPU{{0, 0, 0, 0, 0}, {1, 1, 1, 0, 0}},
		Nodes: []Node{{0, 5 << 30, map[string]uint64{"hugepages-1Gi": 1 << 30}, []int{10}}},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadErrors(t *testing.T) {
	for name, change := range map[string]func(fstest.MapFS){
		"no CPUs":     func(sys fstest.MapFS) { delete(sys, cpuDir+"/online") },
		"bad list":    func(sys fstest.MapFS) { sys[cpuDir+"/online"].Data = []byte("x") },
		"no memory":   func(sys fstest.MapFS) { sys[nodeDir+"/node0/meminfo"].Data = []byte("Node 0 MemFree: 1 kB") },
		"bad memory":  func(sys fstest.MapFS) { sys[nodeDir+"/node0/meminfo"].Data = []byte("Node 0 MemTotal: x kB") },
		"many nodes":  func(sys fstest.MapFS) { sys[nodeDir+"/node64/cpulist"] = &fstest.MapFile{Data: []byte("\n")} },
		"bad cpulist": func(sys fstest.MapFS) { sys[nodeDir+"/node0/cpulist"].Data = []byte("x") },
	} {
		sys := sysOf(1, 1, 2, 1)
		change(sys)
		if _, err := Read(sys, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The machine that runs the test can be read.
func TestReadThis(t *testing.T) {
	m, err := Read(os.DirFS("/sys"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.CPUs) == 0 || len(m.Nodes) == 0 || m.Nodes[0].Memory == 0 {
		t.Errorf("read %+v", m)
	}
}
