// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package hostport

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/knftables"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/service"
)

// The hooks come after those of Services. A packet that a Service has translated does not enter them.
var (
	prerouting = nft.Hook{Type: knftables.NATType, Hook: knftables.PreroutingHook, Priority: knftables.DNATPriority + "+1"}
	output     = nft.Hook{Type: knftables.NATType, Hook: knftables.OutputHook, Priority: "-99"}
)

// family has what differs between IPv4 and IPv6: the suffix of names, the protocol in nft's expressions, the type of
// its addresses, and what else a packet must match. Packets from ::1 cannot leave the machine, so host ports are not
// open there.
type family struct{ suffix, ip, address, match string }

var (
	ipv4 = family{"4", "ip", "ipv4_addr", "meta nfproto ipv4"}
	ipv6 = family{"6", "ip6", "ipv6_addr", "meta nfproto ipv6 ip6 daddr != ::1"}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// place is one of the two ways to find a host port: at one address of the node, or at all of them. Each has a map to the
// chain of the same name, and a map from there to the pods.
type place struct{ name, fields, key string }

func (f family) places() []place {
	key := "inet_proto . inet_service"
	return []place{
		{"hostport-at" + f.suffix, f.ip + " daddr . meta l4proto . th dport", f.address + " . " + key},
		{"hostport-any" + f.suffix, "meta l4proto . th dport", key},
	}
}

func (p place) pods() string { return p.name + "-pods" }

// Base returns the chains and maps that the rules of all pods need, beside those of [service.Base].
func Base() nft.Fragment {
	var base nft.Fragment
	var enter []string
	for _, f := range []family{ipv4, ipv6} {
		var lookups []string
		for _, p := range f.places() {
			base.AddSet(p.name, nft.Set{Map: true, Type: p.key + " : verdict"})
			base.AddSet(p.pods(), nft.Set{Map: true, Type: p.key + " : " + f.address + " . inet_service"})
			lookups = append(lookups, fmt.Sprintf("%s vmap @%s", p.fields, p.name))
			base.AddChain(p.name, nft.Chain{Rules: []string{
				// The answer of a pod to another one on the bridge, or to itself, would not come back through the machine.
				fmt.Sprintf("%s saddr @pod-ranges%s %s", f.ip, f.suffix, service.MarkForMasquerade),
				fmt.Sprintf("dnat %s to %s map @%s", f.ip, p.fields, p.pods()),
			}})
		}
		base.AddChain("hostports"+f.suffix, nft.Chain{Rules: lookups})
		enter = append(enter, fmt.Sprintf("%s fib daddr type local jump hostports%s", f.match, f.suffix))
	}
	base.AddChain("hostport-prerouting", nft.Chain{Hook: &prerouting, Rules: enter})
	base.AddChain("hostport-output", nft.Chain{Hook: &output, Rules: enter})
	return base
}

// The protocols' numbers. nft resolves names only where /etc/protocols exists.
var protocols = map[v1.Protocol]int{v1.ProtocolTCP: 6, v1.ProtocolUDP: 17, v1.ProtocolSCTP: 132}

// Rules returns the rules of a pod's host ports. They need those of [Base].
func Rules(mappings []Mapping) nft.Fragment {
	var rules nft.Fragment
	for _, m := range mappings {
		places := familyOf(m.To.Addr()).places()
		at, key := places[0], fmt.Sprintf("%d . %d", protocols[m.Protocol], m.Port)
		if m.Host.IsUnspecified() {
			at = places[1]
		} else {
			key = m.Host.String() + " . " + key
		}
		rules.AddElement(at.name, key, "goto "+at.name)
		rules.AddElement(at.pods(), key, fmt.Sprintf("%s . %d", m.To.Addr(), m.To.Port()))
	}
	return rules
}
