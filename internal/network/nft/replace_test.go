// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
)

// leftovers are tables of another version of Kindred, whose names have definitions that the kernel does not change.
var leftovers = map[string]string{
	"a map of another type":              "map entries { type ipv6_addr : verdict; elements = { fd00::1 : accept } }",
	"a map that was a set":               "set entries { type ipv4_addr; elements = { 10.0.0.1 } }",
	"a map of ranges":                    "map entries { type ipv4_addr . inet_service : verdict; flags interval; }",
	"a set that rules did not fill":      "set seen { type ipv4_addr; elements = { 10.0.0.1 } }",
	"another priority":                   "chain in { type filter hook input priority 10; }",
	"another hook":                       "chain in { type filter hook output priority 0; }",
	"another type of chain":              "chain in { type nat hook input priority 100; }",
	"the set of a fragment":              "set own { type ipv6_addr; elements = { fd00::1 } }",
	"a set, a chain, and one not wanted": "set own { type ipv6_addr; }; chain in { type filter hook input priority 10; }; chain old { }",
}

// leave makes the kernel's table a leftover with more rules, and returns the table of a new process.
func leave(t *testing.T, leftover string) *Table {
	t.Helper()
	table := kernel(t)
	nft(t, "table inet kindred-test { "+leftover+"; chain user { ip saddr 10.0.0.1 accept; }; }")
	table.Put("", base())
	var f Fragment
	f.AddSet("own", Set{Type: "ipv4_addr . inet_service"})
	f.AddElement("own", "10.0.0.1 . 80", "")
	table.Put("own", f)
	for i := range 5 {
		table.Put(fmt.Sprint(i), service(i, i%2))
	}
	return table
}

func nft(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("nft", command).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", command, err, out)
	}
}

func checkIntact(t *testing.T, table *Table, want bool) {
	t.Helper()
	if intact, err := table.Intact(context.Background()); err != nil || intact != want {
		t.Errorf("intact %t, %v; want %t", intact, err, want)
	}
}

// A new process replaces definitions of another version that the kernel does not change.
func TestOtherDefinitionsAreReplaced(t *testing.T) {
	for name, leftover := range leftovers {
		t.Run(name, func(t *testing.T) {
			table := leave(t, leftover)
			if err := table.Check(context.Background()); err != nil {
				t.Error("check:", err)
			}
			write(t, table)
			checkIntact(t, table, true)
			if elements, _ := listed(t, table); len(elements) != 5 {
				t.Errorf("got %v", elements)
			}
		})
	}
}

// A definition of another version is not taken for the fault of a fragment.
func TestOtherDefinitionsAreNotRefusedFragments(t *testing.T) {
	for name, leftover := range leftovers {
		t.Run(name, func(t *testing.T) {
			table := leave(t, leftover)
			var bad Fragment
			bad.AddElement("entries", "10.0.0.300 . 80", "goto chain-1")
			table.Put("bad", bad)
			refused, err := table.Write(context.Background())
			if err != nil || len(refused) != 1 || refused[0].Source != "bad" {
				t.Fatalf("refused %v, %v", refused, err)
			}
			checkIntact(t, table, true)
			if elements, _ := listed(t, table); len(elements) != 5 {
				t.Errorf("got %v", elements)
			}
		})
	}
}
