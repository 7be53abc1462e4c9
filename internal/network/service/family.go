// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// family has what differs between IPv4 and IPv6.
type family struct {
	// suffix ends the names of everything that belongs to the family.
	suffix string
	// ip is the protocol in nft's expressions, address the type of its addresses.
	ip, address string
	slices      discoveryv1.AddressType
	// loopback are the addresses that must not leave the machine.
	loopback string
	is4      bool
}

var families = []family{
	{suffix: "4", ip: "ip", address: "ipv4_addr", slices: discoveryv1.AddressTypeIPv4, loopback: "127.0.0.0/8", is4: true},
	{suffix: "6", ip: "ip6", address: "ipv6_addr", slices: discoveryv1.AddressTypeIPv6, loopback: "::1", is4: false},
}

// name returns the family's name of a chain, set or map.
func (f family) name(base string) string { return base + f.suffix }

// nth returns the family's name of one of several chains or maps of a kind.
func (f family) nth(base string, n int) string { return fmt.Sprintf("%s-%d", f.name(base), n) }

// addresses returns the valid addresses of the family in a list.
func (f family) addresses(list []string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil && a.Unmap().Is4() == f.is4 {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// prefixes returns the valid prefixes of the family in a list.
func (f family) prefixes(list []string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() == f.is4 {
			all = append(all, p.Masked())
		}
	}
	return all
}

// protocols are the numbers of protocols. nft resolves names only where /etc/protocols exists.
var protocols = map[v1.Protocol]int{v1.ProtocolTCP: 6, v1.ProtocolUDP: 17, v1.ProtocolSCTP: 132}

// portKey is the key of a port on any address.
func portKey(protocol v1.Protocol, port int32) string {
	return fmt.Sprintf("%d . %d", protocols[protocol], port)
}

// addressKey is the key of a port on one address.
func addressKey(address netip.Addr, protocol v1.Protocol, port int32) string {
	return address.String() + " . " + portKey(protocol, port)
}
