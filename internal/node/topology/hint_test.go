// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"math/rand/v2"
	"testing"
)

func policyOn(t *testing.T, name string, m *Machine, options map[string]string) *Policy {
	t.Helper()
	p, err := ParsePolicy(name, ContainerScope, options)
	if err == nil {
		p, err = p.On(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func nodes(n int) *Machine {
	m := &Machine{}
	for i := range n {
		distances := make([]int, n)
		for j := range n {
			distances[j] = 10 + 11*min(abs(i-j), 2)
		}
		m.Nodes = append(m.Nodes, Node{ID: i, Distances: distances})
	}
	return m
}

func abs(i int) int { return max(i, -i) }

func TestMerge(t *testing.T) {
	pref := func(nodes ...int) Hint { return Hint{MaskOf(nodes...), true} }
	not := func(nodes ...int) Hint { return Hint{MaskOf(nodes...), false} }
	for _, test := range []struct {
		name, policy string
		lists        []Hints
		want         Hint
		admit        bool
	}{
		{"no preference", Restricted, []Hints{nil, nil}, pref(0, 1), true},
		{"no preference, single node", SingleNUMANode, []Hints{nil}, Hint{Preferred: true}, true},
		{"one resource", Restricted, []Hints{{pref(0), pref(1), not(0, 1)}, nil}, pref(0), true},
		{"agreement", SingleNUMANode, []Hints{{pref(0), pref(1)}, {pref(1), not(0, 1)}}, pref(1), true},
		{"disagreement", SingleNUMANode, []Hints{{pref(0)}, {pref(1)}}, not(), false},
		{"disagreement, restricted", Restricted, []Hints{{pref(0), not(0, 1)}, {pref(1), not(0, 1)}}, not(0), false},
		{"disagreement, best effort", BestEffort, []Hints{{pref(0), not(0, 1)}, {pref(1), not(0, 1)}}, not(0), true},
		{"more than a node has", Restricted, []Hints{{pref(0, 1)}}, pref(0, 1), true},
		{"more than a node has, single node", SingleNUMANode, []Hints{{pref(0, 1)}}, not(), false},
		{"not enough", Restricted, []Hints{{}}, not(0, 1), false},
		{"none", None, []Hints{{}}, Hint{}, true},
	} {
		got, admit := policyOn(t, test.policy, nodes(2), nil).Merge(test.lists)
		if got != test.want || admit != test.admit {
			t.Errorf("%s: %v %v, want %v %v", test.name, got, admit, test.want, test.admit)
		}
	}
}

// With prefer-closest-numa-nodes, two nodes near each other are better than two lower ones.
func TestPreferClosest(t *testing.T) {
	lists := []Hints{{{MaskOf(0, 2), true}, {MaskOf(1, 2), true}}}
	for option, want := range map[string]Mask{"false": MaskOf(0, 2), "true": MaskOf(1, 2)} {
		p := policyOn(t, Restricted, nodes(3), map[string]string{preferClosestNUMANodes: option})
		if got, _ := p.Merge(lists); got.Nodes != want {
			t.Errorf("prefer-closest-numa-nodes=%s: %v, want %v", option, got.Nodes, want)
		}
	}
}

// TestMergeIsBestCombination compares Merge with the enumeration of all combinations.
func TestMergeIsBestCombination(t *testing.T) {
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 1))
		machine := nodes(1 + random.IntN(4))
		options := map[string]string{preferClosestNUMANodes: []string{"true", "false"}[random.IntN(2)]}
		p := policyOn(t, []string{BestEffort, Restricted, SingleNUMANode}[random.IntN(3)], machine, options)
		var lists []Hints
		for range random.IntN(4) {
			lists = append(lists, randomHints(random, machine.NodeMask()))
		}
		got, admit := p.Merge(lists)
		want, wantAdmit := p.enumerate(lists)
		if got != want || admit != wantAdmit {
			t.Fatalf("seed %d: %s of %v: %v %v, want %v %v", seed, p.Name, lists, got, admit, want, wantAdmit)
		}
	}
}

func randomHints(random *rand.Rand, all Mask) Hints {
	if random.IntN(6) == 0 {
		return nil
	}
	list := Hints{}
	for range random.IntN(5) {
		list = append(list, Hint{Nodes: Mask(random.Uint64()) & all, Preferred: random.IntN(2) == 0})
	}
	return list
}

// enumerate merges hints as KEP-693 describes it: each combination, one after the other.
func (p *Policy) enumerate(resources []Hints) (Hint, bool) {
	all, most := p.machine.NodeMask(), 0
	lists := make([]Hints, len(resources))
	for i, r := range resources {
		lists[i] = p.consider(r.orDefault())
		narrowest := Mask(0)
		for _, h := range lists[i] {
			if h.Nodes != 0 && (narrowest == 0 || h.Nodes.Narrower(narrowest)) {
				narrowest = h.Nodes
			}
		}
		most = max(most, narrowest.Count())
	}
	var best *Hint
	var walk func(i int, chosen []Hint)
	walk = func(i int, chosen []Hint) {
		if i < len(lists) {
			for _, h := range lists[i] {
				walk(i+1, append(chosen[:len(chosen):len(chosen)], h))
			}
			return
		}
		merged, first := Hint{Nodes: all, Preferred: true}, Mask(0)
		for _, h := range chosen {
			merged.Preferred = merged.Preferred && h.Preferred
			if h.Nodes == 0 {
				continue
			}
			merged.Nodes &= h.Nodes
			if first == 0 {
				first = h.Nodes
			}
			merged.Preferred = merged.Preferred && h.Nodes == first
		}
		if merged.Nodes != 0 && (best == nil || p.improves(merged, *best, most)) {
			best = &merged
		}
	}
	walk(0, nil)
	if best == nil {
		best = &Hint{Nodes: all}
	}
	if p.Name == SingleNUMANode && best.Nodes == all {
		best.Nodes = 0
	}
	return *best, p.Name == BestEffort || best.Preferred
}

// improves is KEP-693's comparison of a candidate with the best combination so far.
func (p *Policy) improves(candidate, best Hint, most int) bool {
	if candidate.Preferred != best.Preferred {
		return candidate.Preferred
	}
	fitter := candidate.Nodes != best.Nodes && p.closer(candidate.Nodes, best.Nodes)
	c, b := candidate.Nodes.Count(), best.Nodes.Count()
	switch {
	case best.Preferred, b > most, b == most && c == most:
		return fitter
	case b == most, c > most:
		return false
	case c == most:
		return true
	case c != b:
		return c > b
	}
	return fitter
}

func TestParsePolicy(t *testing.T) {
	for _, test := range []struct {
		name, scope string
		options     map[string]string
		want        string
	}{
		{"best", "pod", nil, `topologyManagerPolicy is "best", and must be none, best-effort, restricted or single-numa-node`},
		{"none", "node", nil, `topologyManagerScope is "node", and must be container or pod`},
		{"restricted", "pod", map[string]string{"x": ""}, `topologyManagerPolicyOptions: unknown Topology Manager Policy option: "x"`},
		{"restricted", "pod", map[string]string{maxAllowableNUMANodes: "7"}, `topologyManagerPolicyOptions: the minimum value of "max-allowable-numa-nodes" should not be less than 8`},
	} {
		if _, err := ParsePolicy(test.name, test.scope, test.options); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	p, err := ParsePolicy(Restricted, ContainerScope, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.On(nodes(9)); err == nil {
		t.Error("nine NUMA nodes are accepted")
	}
}
