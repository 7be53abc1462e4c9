// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// Config has what all rules have in common.
type Config struct {
	// Bridge is the interface of the node's pods, and Link the one to which Services are routed; "" if they are not
	// known.
	Bridge, Link string
	// Clusters matches the names of these interfaces of all clusters on the machine, such as "kd*"; "" if there is
	// only this one.
	Clusters string
	// PodRanges are the ranges of the pods of this node, ServiceRanges those of all ClusterIPs.
	PodRanges, ServiceRanges []netip.Prefix
	// Guarded are sockets of the machine that are reached by a Service only, for TCP and UDP.
	Guarded []netip.AddrPort
}

// MarkForMasquerade is the statement that makes the chains of [Base] masquerade a packet. The bit of the mark is the one
// that upstream uses by default.
const MarkForMasquerade = "meta mark set meta mark or 0x4000"

const unmark = "meta mark set meta mark and 0xffffbfff"

// Base returns the chains, sets and maps that the rules of all Services need.
func Base(c Config) nft.Fragment {
	var base nft.Fragment
	for _, f := range families {
		f.addSets(&base)
		for set, ranges := range map[string][]netip.Prefix{"pod-ranges": c.PodRanges, "service-ranges": c.ServiceRanges} {
			for _, r := range ranges {
				if r.Addr().Is4() == f.is4 {
					base.AddElement(f.name(set), r.String(), "")
				}
			}
		}
	}
	c.addTranslation(&base)
	c.addFilters(&base)
	return base
}

// addSets adds the family's sets and maps.
func (f family) addSets(base *nft.Fragment) {
	for _, name := range []string{"pod-ranges", "service-ranges"} {
		base.AddSet(f.name(name), nft.Set{Type: f.address, Interval: true})
	}
	base.AddSet(f.name("cluster-ips"), nft.Set{Type: f.address})
	base.AddSet(f.name("balancer-ips"), nft.Set{Type: f.address})
	base.AddSet(f.name("hairpin"), nft.Set{Type: f.address + " . " + f.address})
	for _, name := range []string{"entries", "internal", "no-endpoints", "firewall"} {
		base.AddSet(f.name(name), nft.Set{Map: true, Type: f.address + " . inet_proto . inet_service : verdict"})
	}
	for _, name := range []string{"nodeports", "internal-nodeports", "no-endpoint-nodeports"} {
		base.AddSet(f.name(name), nft.Set{Map: true, Type: "inet_proto . inet_service : verdict"})
	}
}

// both returns rules for both families; each %[1]s is the expression of the protocol, each %[2]s the suffix.
func both(rules ...string) []string {
	var all []string
	for _, f := range families {
		for _, rule := range rules {
			all = append(all, fmt.Sprintf(rule, f.ip, f.suffix, f.loopback))
		}
	}
	return all
}

// The hooks of a packet, in the order of their priorities: firewall, translation of the destination, filters
// for what was not translated, translation of the source.
var (
	prerouting       = nft.Hook{Type: knftables.NATType, Hook: knftables.PreroutingHook, Priority: knftables.DNATPriority}
	output           = nft.Hook{Type: knftables.NATType, Hook: knftables.OutputHook, Priority: "-100"}
	postrouting      = nft.Hook{Type: knftables.NATType, Hook: knftables.PostroutingHook, Priority: knftables.SNATPriority}
	beforePrerouting = nft.Hook{Type: knftables.FilterType, Hook: knftables.PreroutingHook, Priority: knftables.DNATPriority + "-10"}
	beforeOutput     = nft.Hook{Type: knftables.FilterType, Hook: knftables.OutputHook, Priority: "-110"}
	filterForward    = nft.Hook{Type: knftables.FilterType, Hook: knftables.ForwardHook, Priority: knftables.FilterPriority}
	filterInput      = nft.Hook{Type: knftables.FilterType, Hook: knftables.InputHook, Priority: knftables.FilterPriority}
	filterOutput     = nft.Hook{Type: knftables.FilterType, Hook: knftables.OutputHook, Priority: knftables.FilterPriority}
)

// Clusters on one machine usually have the same range of Services. These rules leave packets to another cluster that
// come from its pods, or that the machine routes to it.
func (c Config) notFromOurs() []string { return c.others("iifname") }
func (c Config) notToOurs() []string   { return c.others("oifname") }

func (c Config) others(name string) []string {
	if c.Clusters == "" {
		return nil
	}
	return both(fmt.Sprintf("%[1]s %[2]q %[1]s != { %[3]q, %[4]q }", name, c.Clusters, c.Bridge, c.Link) + " %[1]s daddr @service-ranges%[2]s return")
}

// addTranslation adds the chains that translate addresses. They see the first packet of each connection.
func (c Config) addTranslation(base *nft.Fragment) {
	fromPods := both("%[1]s saddr @pod-ranges%[2]s jump internal")
	// Other machines may route ClusterIPs here; the endpoint's answers must come back the same way.
	fromOutside := both("%[1]s saddr != @pod-ranges%[2]s %[1]s daddr @cluster-ips%[2]s " + MarkForMasquerade)
	base.AddChain("nat-prerouting", nft.Chain{Hook: &prerouting, Rules: slices.Concat(c.notFromOurs(), fromOutside, fromPods, []string{"jump services"})})
	base.AddChain("nat-output", nft.Chain{Hook: &output, Rules: slices.Concat(c.notToOurs(), []string{"jump internal", "jump services"})})
	base.AddChain("services", lookups("entries", "nodeports"))
	base.AddChain("internal", lookups("internal", "internal-nodeports"))
	base.AddChain("nat-postrouting", nft.Chain{Hook: &postrouting, Rules: append(
		both(
			// A pod that reaches itself would answer itself directly, from an address that it has not called.
			"%[1]s saddr . %[1]s daddr @hairpin%[2]s masquerade",
			`oifname != "lo" ct status dnat %[1]s saddr %[3]s masquerade`,
		),
		"meta mark and 0x4000 != 0x4000 return",
		unmark,
		"masquerade fully-random",
	)})
}

// lookups returns a chain that looks up a packet's destination, first among addresses, then among ports of the
// node. Packets from ::1 cannot leave the machine, so node ports are not open there.
func lookups(addresses, ports string) nft.Chain {
	return nft.Chain{Rules: append(
		both("%[1]s daddr . meta l4proto . th dport vmap @"+addresses+"%[2]s"),
		"meta nfproto ipv4 fib daddr type local meta l4proto . th dport vmap @"+ports+"4",
		"meta nfproto ipv6 ip6 daddr != ::1 fib daddr type local meta l4proto . th dport vmap @"+ports+"6",
	)}
}

// guard returns rules that drop packets which did not come by a Service.
func (c Config) guard() []string {
	var rules []string
	for _, socket := range c.Guarded {
		f := families[0]
		if socket.Addr().Is6() {
			f = families[1]
		}
		rules = append(rules, fmt.Sprintf("%s daddr %s meta l4proto { 6, 17 } th dport %d ct status ! dnat drop", f.ip, socket.Addr(), socket.Port()))
	}
	return rules
}

// addFilters adds the chains that refuse packets.
func (c Config) addFilters(base *nft.Fragment) {
	firewall := []string{"ct state new jump firewall"}
	// Node ports on 127.0.0.1 need route_localnet, which alone would open the machine's loopback to pods
	// (CVE-2020-8558).
	var spoofed []string
	if c.Bridge != "" {
		spoofed = append(spoofed, fmt.Sprintf("iifname %q ip daddr 127.0.0.0/8 drop", c.Bridge))
	}
	base.AddChain("filter-prerouting", nft.Chain{Hook: &beforePrerouting, Rules: append(spoofed, firewall...)})
	base.AddChain("filter-output-firewall", nft.Chain{Hook: &beforeOutput, Rules: firewall})
	base.AddChain("firewall", nft.Chain{Rules: both("%[1]s daddr . meta l4proto . th dport vmap @firewall%[2]s")})

	untranslated := []string{"ct state new jump untranslated"}
	base.AddChain("filter-forward", nft.Chain{Hook: &filterForward, Rules: append(c.notFromOurs(), untranslated...)})
	base.AddChain("filter-input", nft.Chain{Hook: &filterInput, Rules: append(c.guard(), untranslated...)})
	base.AddChain("filter-output", nft.Chain{Hook: &filterOutput, Rules: append(c.notToOurs(), untranslated...)})
	refused := lookups("no-endpoints", "no-endpoint-nodeports")
	refused.Rules = append(append([]string{"ct status dnat return"}, refused.Rules...), both(
		// A port that the Service does not have is refused at once; an address that no Service has is dropped.
		"%[1]s daddr @cluster-ips%[2]s goto refuse",
		"%[1]s daddr @service-ranges%[2]s drop",
		// Programs of the machine that listen on all addresses do not answer on those of load balancers.
		"%[1]s daddr @balancer-ips%[2]s meta l4proto { 6, 17, 132 } goto refuse",
	)...)
	base.AddChain("untranslated", refused)
	// Unlike ICMP, resets are not limited in number by the kernel.
	base.AddChain("refuse", nft.Chain{Rules: []string{"meta l4proto tcp reject with tcp reset", "reject"}})
}
