// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/kindred-project/kindred/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// kernel returns a table of the kernel, in the namespace of the test.
func kernel(t *testing.T) *Table {
	t.Helper()
	netns.Required(t)
	table, err := Open("kindred-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Delete(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return table
}

func base() Fragment {
	var f Fragment
	f.AddSet("entries", Set{Map: true, Type: "ipv4_addr . inet_service : verdict"})
	f.AddSet("seen", Set{Type: "ipv4_addr", Timeout: time.Hour})
	f.AddChain("in", Chain{
		Hook:  &Hook{knftables.FilterType, knftables.InputHook, "0"},
		Rules: []string{"ip daddr . th dport vmap @entries"},
	})
	return f
}

// service is a fragment of one entry, with a chain that others may share.
func service(i, chain int) Fragment {
	var f Fragment
	name := fmt.Sprintf("chain-%d", chain)
	f.AddChain(name, Chain{Rules: []string{"update @seen { ip saddr }", fmt.Sprintf("meta mark set %d", chain)}})
	f.AddElement("entries", fmt.Sprintf("10.0.%d.%d . 80", i/256, i%256), "goto "+name)
	return f
}

func write(t *testing.T, table *Table) {
	t.Helper()
	refused, err := table.Write(context.Background())
	if err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
}

// listed returns the elements of the map, and the names of the chains.
func listed(t *testing.T, table *Table) (elements map[string]string, chains []string) {
	t.Helper()
	ctx := context.Background()
	found, err := table.nft.ListElements(ctx, "map", "entries")
	if err != nil {
		t.Fatal(err)
	}
	elements = map[string]string{}
	for _, e := range found {
		elements[strings.Join(e.Key, " . ")] = strings.Join(e.Value, " ")
	}
	if chains, err = table.nft.List(ctx, "chain"); err != nil {
		t.Fatal(err)
	}
	slices.Sort(chains)
	return elements, chains
}

// The kernel has the union of all fragments after every write, whether it is an update or a replacement.
func TestRandomWritesReachTheKernel(t *testing.T) {
	table := kernel(t)
	random := rand.New(rand.NewPCG(1, 2))
	table.Put("", base())
	want := map[int]int{}
	for step := range 60 {
		for range random.IntN(5) {
			i := random.IntN(20)
			if random.IntN(3) == 0 {
				delete(want, i)
				table.Put(fmt.Sprint(i), Fragment{})
				continue
			}
			want[i] = random.IntN(4)
			table.Put(fmt.Sprint(i), service(i, want[i]))
		}
		if random.IntN(5) == 0 {
			table.Forget()
		}
		write(t, table)
		elements, chains := map[string]string{}, map[string]bool{"in": true}
		for i, chain := range want {
			elements[fmt.Sprintf("10.0.0.%d . 80", i)] = fmt.Sprintf("goto chain-%d", chain)
			chains[fmt.Sprintf("chain-%d", chain)] = true
		}
		gotElements, gotChains := listed(t, table)
		if !maps.Equal(gotElements, elements) || !slices.Equal(gotChains, slices.Sorted(maps.Keys(chains))) {
			t.Fatalf("step %d: got %v %v, want %v %v", step, gotElements, gotChains, elements, chains)
		}
		if intact, err := table.Intact(context.Background()); err != nil || !intact {
			t.Fatalf("step %d: intact %t, %v", step, intact, err)
		}
	}
}

// A new process replaces what an earlier one left, but not the elements that the kernel added.
func TestNewProcess(t *testing.T) {
	old := kernel(t)
	old.Put("", base())
	old.Put("1", service(1, 1))
	old.Put("2", service(2, 2))
	write(t, old)
	nft(t, "add element inet kindred-test seen { 10.9.9.9 timeout 30m }")

	again, err := Open("kindred-test")
	if err != nil {
		t.Fatal(err)
	}
	again.Put("", base())
	again.Put("2", service(2, 3))
	write(t, again)
	elements, chains := listed(t, again)
	if want := map[string]string{"10.0.0.2 . 80": "goto chain-3"}; !maps.Equal(elements, want) || !slices.Equal(chains, []string{"chain-3", "in"}) {
		t.Errorf("got %v, %v", elements, chains)
	}
	seen, err := again.nft.ListElements(context.Background(), "set", "seen")
	if err != nil || len(seen) != 1 {
		t.Errorf("seen: %v, %v", seen, err)
	}
}

func TestRefusedFragmentFailsAlone(t *testing.T) {
	table := kernel(t)
	table.Put("", base())
	for i := range 10 {
		table.Put(fmt.Sprint(i), service(i, i%3))
	}
	write(t, table)
	var bad Fragment
	bad.AddElement("entries", "10.0.0.300 . 80", "goto chain-1")
	table.Put("bad", bad)
	table.Put("11", service(11, 1))
	refused, err := table.Write(context.Background())
	if err != nil || len(refused) != 1 || refused[0].Source != "bad" || refused[0].Err == nil {
		t.Fatalf("refused %v, %v", refused, err)
	}
	if elements, _ := listed(t, table); len(elements) != 11 {
		t.Errorf("got %v", elements)
	}
	table.Put("bad", service(200, 1))
	write(t, table)
	if elements, _ := listed(t, table); len(elements) != 12 {
		t.Errorf("got %v", elements)
	}
}

// The first source keeps what two want; the second gets it when the first goes.
func TestContestedElement(t *testing.T) {
	c := NewContent()
	var a, b Fragment
	a.AddElement("entries", "x", "1")
	b.AddElement("entries", "x", "2")
	key := Element{"entries", "x"}
	c.Put("a", a)
	c.Put("b", b)
	if v, _ := c.elems.value(key); v != "1" {
		t.Errorf("both: %s", v)
	}
	c.written()
	c.Remove("a")
	if v, _ := c.elems.value(key); v != "2" || !c.Changed() {
		t.Errorf("second: %s", v)
	}
	c.Put("a", a)
	c.Remove("a")
	if v, _ := c.elems.value(key); v != "2" {
		t.Errorf("after the first came and went: %s", v)
	}
	c.Remove("b")
	if _, ok := c.elems.value(key); ok {
		t.Error("none: still there")
	}
}
