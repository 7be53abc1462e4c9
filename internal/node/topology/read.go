// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

const (
	cpuDir  = "devices/system/cpu"
	nodeDir = "devices/system/node"
	hugeDir = "kernel/mm/hugepages"
)

// Read reads a machine from sys, the file system that Linux mounts at /sys. memory is the size of the machine's
// memory, which a kernel without NUMA does not have there.
func Read(sys fs.FS, memory uint64) (*Machine, error) {
	online, err := cpuList(sys, cpuDir+"/online")
	if err != nil {
		return nil, err
	}
	m := &Machine{}
	if m.Nodes, err = readNodes(sys, memory); err != nil {
		return nil, err
	}
	for _, id := range online.List() {
		m.CPUs = append(m.CPUs, readCPU(sys, id, online))
	}
	m.sort()
	return m, m.setNodes(sys)
}

// readCPU reads one CPU. Some machines have no topology directory, or -1 in it: then the CPU is a core of socket 0.
func readCPU(sys fs.FS, id int, online cpuset.CPUSet) CPU {
	dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
	c := CPU{ID: id, Core: id, Cache: id, Socket: max(number(sys, dir+"/topology/physical_package_id"), 0)}
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		if lowest, ok := lowestOf(sys, dir+"/topology/"+name, online); ok {
			c.Core = lowest
			break
		}
	}
	c.Cache = c.Core
	level := 0
	caches, _ := fs.Glob(sys, dir+"/cache/index*")
	for _, cache := range caches {
		lowest, ok := lowestOf(sys, cache+"/shared_cpu_list", online)
		if l := number(sys, cache+"/level"); ok && l > level {
			level, c.Cache = l, lowest
		}
	}
	return c
}

// lowestOf returns the lowest CPU in a list that is online.
func lowestOf(sys fs.FS, name string, online cpuset.CPUSet) (int, bool) {
	set, err := cpuList(sys, name)
	set = set.Intersection(online)
	if err != nil || set.IsEmpty() {
		return 0, false
	}
	return set.List()[0], true
}

// readNodes reads the NUMA nodes. A machine without any is one node.
func readNodes(sys fs.FS, memory uint64) ([]Node, error) {
	dirs, err := fs.Glob(sys, nodeDir+"/node[0-9]*")
	if err != nil {
		return nil, err
	}
	if len(dirs) == 0 {
		return []Node{{Memory: memory, HugePages: hugePages(sys, hugeDir), Distances: []int{10}}}, nil
	}
	var nodes []Node
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		if id > MaxNode {
			return nil, fmt.Errorf("the machine has NUMA node %d, and at most %d nodes are supported", id, MaxNode+1)
		}
		n := Node{ID: id, HugePages: hugePages(sys, dir+"/hugepages")}
		if n.Memory, err = nodeMemory(sys, dir+"/meminfo"); err != nil {
			return nil, err
		}
		text, _ := fs.ReadFile(sys, dir+"/distance")
		for _, field := range strings.Fields(string(text)) {
			distance, _ := strconv.Atoi(field)
			n.Distances = append(n.Distances, distance)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// setNodes sets the NUMA node of each CPU.
func (m *Machine) setNodes(sys fs.FS) error {
	for _, n := range m.Nodes {
		list, err := cpuList(sys, fmt.Sprintf("%s/node%d/cpulist", nodeDir, n.ID))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without NUMA: all CPUs are on node 0
		}
		if err != nil {
			return err
		}
		for i := range m.CPUs {
			if list.Contains(m.CPUs[i].ID) {
				m.CPUs[i].Node = n.ID
			}
		}
	}
	return nil
}

// nodeMemory returns MemTotal of a node ("Node 0 MemTotal:  16303428 kB").
func nodeMemory(sys fs.FS, name string) (uint64, error) {
	text, err := fs.ReadFile(sys, name)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[2] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseUint(fields[3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read MemTotal in %s: %w", name, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("%s has no MemTotal", name)
}

// hugePages returns the bytes in huge pages, by resource name, from a directory of hugepages-<size>kB.
func hugePages(sys fs.FS, dir string) map[string]uint64 {
	pages := map[string]uint64{}
	sizes, _ := fs.Glob(sys, dir+"/hugepages-*kB")
	for _, size := range sizes {
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(path.Base(size), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(kib<<10, resource.BinarySI).String()
		pages[name] = uint64(max(number(sys, size+"/nr_hugepages"), 0)) * uint64(kib) << 10
	}
	return pages
}

// number returns the number in a file, or -1.
func number(sys fs.FS, name string) int {
	text, err := fs.ReadFile(sys, name)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return n
}

func cpuList(sys fs.FS, name string) (cpuset.CPUSet, error) {
	text, err := fs.ReadFile(sys, name)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("read the list of CPUs in %s: %w", name, err)
	}
	return set, nil
}
