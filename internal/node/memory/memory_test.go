// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kindred-project/kindred/internal/node/topology"
)

const huge = v1.ResourceName("hugepages-2Mi")

// nodes has n NUMA nodes of 100 bytes, of which 20 are in huge pages and 10 are reserved on node 0.
func nodes(t *testing.T, n int) *Policy {
	t.Helper()
	m := &topology.Machine{}
	for id := range n {
		m.Nodes = append(m.Nodes, topology.Node{ID: id, Memory: 100, HugePages: map[string]uint64{string(huge): 20}})
	}
	p, err := New(m, []kubeletv1beta1.MemoryReservation{reserve(0, "10")}, v1.ResourceList{v1.ResourceMemory: resource.MustParse("10")})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func reserve(node int32, memory string) kubeletv1beta1.MemoryReservation {
	return kubeletv1beta1.MemoryReservation{NumaNode: node, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}
}

func ofMemory(size uint64) map[v1.ResourceName]uint64 {
	return map[v1.ResourceName]uint64{v1.ResourceMemory: size}
}

func block(size uint64, nodes ...int) Block {
	return Block{Nodes: topology.MaskOf(nodes...), Type: v1.ResourceMemory, Size: size}
}

func TestAllocate(t *testing.T) {
	p := nodes(t, 2)
	for _, test := range []struct {
		name   string
		r      Request
		chosen topology.Hint
		want   topology.Mask
		err    string
	}{
		{"lowest", Request{Wanted: ofMemory(70)}, topology.Hint{}, 1, ""},
		{"larger node", Request{Wanted: ofMemory(80)}, topology.Hint{}, 2, ""},
		{"both", Request{Wanted: ofMemory(100)}, topology.Hint{}, 3, ""},
		{"chosen", Request{Wanted: ofMemory(10)}, topology.Hint{Nodes: 2, Preferred: true}, 2, ""},
		{"extended", Request{Wanted: ofMemory(100)}, topology.Hint{Nodes: 2}, 3, ""},
		{"too much", Request{Wanted: ofMemory(151)}, topology.Hint{}, 0, "failed to get the default NUMA affinity"},
		{"used", Request{Wanted: ofMemory(70), Others: []Block{block(1, 0)}}, topology.Hint{}, 2, ""},
		{"not preferred", Request{Wanted: ofMemory(75), Others: []Block{block(10, 0), block(10, 1)}}, topology.Hint{Preferred: true}, 0, "no NUMA nodes with enough memory"},
		{"another group", Request{Wanted: ofMemory(100), Others: []Block{block(1, 0)}}, topology.Hint{}, 0, "no NUMA nodes with enough memory"},
		{"in the group", Request{Wanted: ofMemory(30), Others: []Block{block(100, 0, 1)}}, topology.Hint{}, 3, ""},
		{"cannot extend", Request{Wanted: ofMemory(75), Others: []Block{block(10, 0)}}, topology.Hint{Nodes: 1}, 0, "failed to find NUMA nodes to extend"},
		{"extension not preferred", Request{Wanted: ofMemory(30), Others: []Block{block(100, 0, 1)}}, topology.Hint{Nodes: 2, Preferred: true}, 0, "failed to find the extended preferred hint"},
		{"default not preferred", Request{Wanted: ofMemory(30), Others: []Block{block(100, 0, 1)}}, topology.Hint{Preferred: true}, 0, "failed to find the default preferred hint"},
		{"huge pages", Request{Wanted: map[v1.ResourceName]uint64{huge: 30, v1.ResourceMemory: 1}}, topology.Hint{}, 3, ""},
		{"after an init container", Request{Wanted: ofMemory(70), Pod: []Use{{Ends: true, Blocks: []Block{block(70, 0)}}}}, topology.Hint{}, 1, ""},
		{"beside a sidecar", Request{Wanted: ofMemory(70), Pod: []Use{{Blocks: []Block{block(70, 0)}}}}, topology.Hint{}, 2, ""},
	} {
		blocks, err := p.Allocate(test.r, test.chosen)
		switch {
		case err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v", test.name, err)
		case err == nil && (len(blocks) != len(test.r.Wanted) || blocks[0].Nodes != test.want):
			t.Errorf("%s: %v, want nodes %v", test.name, blocks, test.want)
		}
	}
}

func TestHeld(t *testing.T) {
	got := Held([]Use{
		{Ends: true, Blocks: []Block{block(50, 0)}},
		{Blocks: []Block{block(10, 0)}},
		{Ends: true, Blocks: []Block{block(30, 0)}},
		{Blocks: []Block{block(35, 0)}},
		{Blocks: []Block{block(7, 1)}},
	})
	if diff := cmp.Diff([]Block{block(50, 0), block(7, 1)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever pods come and go, no group has more than its nodes have, and no node is in two groups.
func TestNothingIsGivenTwice(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 3))
		p := nodes(t, 1+random.IntN(3))
		pods := map[int][]Use{}
		for step := range 12 {
			if random.IntN(3) == 0 {
				delete(pods, random.IntN(step+1))
			}
			var others []Block
			for _, uses := range pods {
				others = append(others, Held(uses)...)
			}
			var uses []Use
			for range 1 + random.IntN(3) {
				r := Request{Wanted: ofMemory(1 + uint64(random.IntN(90))), Ends: random.IntN(3) == 0, Others: others, Pod: uses}
				blocks, err := p.Allocate(r, topology.Hint{Nodes: topology.Mask(random.Uint64()) & p.machine.NodeMask()})
				if err != nil {
					uses = nil
					break
				}
				uses = append(uses, Use{Ends: r.Ends, Blocks: blocks})
			}
			pods[step] = uses
			if err := check(p, pods); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func check(p *Policy, pods map[int][]Use) error {
	sums := map[topology.Mask]uint64{}
	for _, uses := range pods {
		for _, b := range Held(uses) {
			sums[b.Nodes] += b.Size
		}
	}
	for group, sum := range sums {
		if total := p.total(group)[v1.ResourceMemory]; sum > total {
			return fmt.Errorf("nodes %v hold %d of %d", group, sum, total)
		}
		for other := range sums {
			if other != group && other&group != 0 {
				return fmt.Errorf("groups %v and %v", group, other)
			}
		}
	}
	return nil
}

func TestNewErrors(t *testing.T) {
	m := &topology.Machine{Nodes: []topology.Node{{ID: 0, Memory: 100}}}
	total := v1.ResourceList{v1.ResourceMemory: resource.MustParse("10"), v1.ResourceCPU: resource.MustParse("1")}
	for _, test := range []struct {
		reserved []kubeletv1beta1.MemoryReservation
		want     string
	}{
		{nil, "requires memory to be reserved"},
		{[]kubeletv1beta1.MemoryReservation{reserve(1, "10")}, "references a NUMA node 1 that does not exist"},
		{[]kubeletv1beta1.MemoryReservation{reserve(0, "9")}, `the total amount "9" of type "memory" is not equal to the value "10" determined by Node Allocatable feature`},
	} {
		if _, err := New(m, test.reserved, total); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	p, err := New(m, []kubeletv1beta1.MemoryReservation{reserve(0, "4"), reserve(0, "6")}, total)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Block{block(90, 0)}, p.Allocatable()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if CheckPolicy("static") == nil || CheckPolicy("Static") != nil {
		t.Error("the policy is Static")
	}
}

func TestRequested(t *testing.T) {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("5"), huge: resource.MustParse("2")}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}}}
	if diff := cmp.Diff(map[v1.ResourceName]uint64{v1.ResourceMemory: 5, huge: 2}, Requested(p, &p.Spec.Containers[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Spec.Containers[0].Resources.Limits = nil
	if got := Requested(p, &p.Spec.Containers[0]); len(got) > 0 {
		t.Errorf("a Burstable pod: %v", got)
	}
}
