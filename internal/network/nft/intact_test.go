// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import "testing"

// ranges has elements that the kernel stores in other forms: ranges that are adjacent, or that end with the last address.
func ranges() Fragment {
	var f Fragment
	for name, kind := range map[string]string{"ranges4": "ipv4_addr", "ranges6": "ipv6_addr"} {
		f.AddSet(name, Set{Type: kind, Interval: true})
	}
	for _, r := range []string{"0.0.0.0/8", "10.244.0.0/24", "10.244.1.0/24", "10.244.2.7/32", "10.244.3.0-10.244.3.9", "255.0.0.0/8"} {
		f.AddElement("ranges4", r, "")
	}
	f.AddElement("ranges6", "::/0", "")
	f.AddSet("sockets", Set{Type: "ipv6_addr . inet_proto . inet_service"})
	f.AddElement("sockets", "::10.0.0.1 . 6 . 80", "")
	f.AddElement("sockets", "fd00::1 . 17 . 53", "")
	f.AddSet("empty", Set{Map: true, Type: "inet_service : verdict"})
	return f
}

// A change by another program is noticed, but not that rules added elements.
func TestIntact(t *testing.T) {
	for command, want := range map[string]bool{
		"add table inet kindred-test":                                                             true,
		"add element inet kindred-test seen { 10.9.9.9 timeout 30m }":                             true,
		"flush map inet kindred-test entries":                                                     false,
		"delete element inet kindred-test entries { 10.0.0.1 . 80 }":                              false,
		"add element inet kindred-test entries { 10.9.9.9 . 80 : accept }":                        false,
		"flush set inet kindred-test ranges4":                                                     false,
		"delete element inet kindred-test ranges4 { 10.244.1.0/24 }":                              false,
		"add element inet kindred-test ranges4 { 10.245.0.0/24 }":                                 false,
		"flush set inet kindred-test ranges6":                                                     false,
		"add element inet kindred-test empty { 80 : accept }":                                     false,
		"delete map inet kindred-test empty":                                                      false,
		"delete map inet kindred-test empty; add set inet kindred-test other { type ipv4_addr; }": false,
		"add chain inet kindred-test other":                                                       false,
		"add rule inet kindred-test in accept":                                                    false,
		"flush chain inet kindred-test in":                                                        false,
		"delete table inet kindred-test":                                                          false,
		"flush ruleset":                                                                           false,
	} {
		t.Run(command, func(t *testing.T) {
			table := kernel(t)
			table.Put("", base())
			table.Put("ranges", ranges())
			for i := range 5 {
				table.Put(string(rune('a'+i)), service(i, i%2))
			}
			write(t, table)
			checkIntact(t, table, true)
			nft(t, command)
			checkIntact(t, table, want)
			table.Forget()
			write(t, table)
			checkIntact(t, table, true)
		})
	}
}
