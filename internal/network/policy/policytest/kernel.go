// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// Connection is a new connection, with the server's address and port after translation by Services.
type Connection struct {
	Client, Server netip.Addr
	Protocol       corev1.Protocol
	Port           int
}

// Kernel evaluates compiled fragments as the kernel of a node would.
type Kernel struct{ table nft.Fragment }

// Load returns a Kernel with fragments, which are given by their source.
func Load(fragments map[string]nft.Fragment) Kernel {
	var k Kernel
	for _, f := range fragments {
		k.table.Add(f)
	}
	return k
}

// Allows reports whether the rules let a connection through.
func (k Kernel) Allows(c Connection) bool {
	if c.Client == c.Server && has(k.table, "self", c.Client, c.Client.String()+" . "+c.Client.String()) {
		return true
	}
	return chainAllows(k.table, "egress", c.Client, c) && chainAllows(k.table, "ingress", c.Server, c)
}

func has(f nft.Fragment, set string, of netip.Addr, key string) bool {
	_, ok := f.Elements[nft.Element{Set: set + suffix(of), Key: key}]
	return ok
}

// suffix ends the names of the sets and maps of an address's family.
func suffix(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

// keyword is nft's for an address's family.
func keyword(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}

func chainAllows(f nft.Fragment, direction string, isolated netip.Addr, c Connection) bool {
	verdict, ok := f.Elements[nft.Element{Set: direction + suffix(isolated), Key: isolated.String()}]
	if !ok {
		return true
	}
	return follow(f, strings.TrimPrefix(verdict, "jump "), c)
}

// follow evaluates a chain: one that ends without a verdict returns.
func follow(f nft.Fragment, name string, c Connection) bool {
	chain, ok := f.Chains[name]
	if !ok {
		panic("no chain " + name)
	}
	for _, rule := range chain.Rules {
		matched, verdict := evaluate(f, rule, c)
		next, isGoto := strings.CutPrefix(verdict, "goto ")
		switch {
		case !matched:
		case isGoto:
			return follow(f, next, c)
		default:
			return verdict == "return"
		}
	}
	return true
}

// evaluate knows the few forms of rules that the compiler writes.
func evaluate(f nft.Fragment, rule string, c Connection) (bool, string) {
	words := strings.Fields(rule)
	take := func() string {
		w := words[0]
		words = words[1:]
		return w
	}
	value := func() string {
		switch w := take(); {
		case w == "meta" && take() == "l4proto":
			return strings.ToLower(string(c.Protocol))
		case w == "th":
			if take() == "dport" {
				return strconv.Itoa(c.Port)
			}
			return "0"
		case w == "ct" && words[0] == "direction":
			take()
			return "original"
		case w == "ct" && words[0] == "reply" && words[1] == "proto-src":
			words = words[2:]
			return strconv.Itoa(c.Port)
		case w == "ct":
			end, of := c.Client, ""
			if take() == "reply" {
				end = c.Server
			}
			if of = take(); take() != "saddr" || of != keyword(end) {
				return "no such address"
			}
			return end.String()
		}
		panic(rule)
	}
	for words[0] != "return" && words[0] != "drop" && words[0] != "goto" {
		key := value()
		for words[0] == "." {
			take()
			key += " . " + value()
		}
		if !matches(f, &words, key) {
			return false, ""
		}
	}
	return true, strings.Join(words, " ")
}

func matches(f nft.Fragment, words *[]string, key string) bool {
	first := (*words)[0]
	if first != "{" {
		*words = (*words)[1:]
		if name, isSet := strings.CutPrefix(first, "@"); isSet {
			if _, defined := f.Sets[name]; !defined {
				panic("no set " + name)
			}
			_, in := f.Elements[nft.Element{Set: name, Key: key}]
			return in
		}
		return within(first, key)
	}
	end := slices.Index(*words, "}")
	elements := (*words)[1:end]
	*words = (*words)[end+1:]
	return slices.ContainsFunc(elements, func(e string) bool { return within(strings.TrimSuffix(e, ","), key) })
}

func within(element, key string) bool {
	from, to, isRange := strings.Cut(element, "-")
	if !isRange {
		to = from
	}
	if a, err := netip.ParseAddr(key); err == nil {
		return a.Compare(netip.MustParseAddr(from)) >= 0 && a.Compare(netip.MustParseAddr(to)) <= 0
	}
	if element == key {
		return true
	}
	n, err1 := strconv.Atoi(key)
	low, err2 := strconv.Atoi(from)
	high, err3 := strconv.Atoi(to)
	return err1 == nil && err2 == nil && err3 == nil && low <= n && n <= high
}
