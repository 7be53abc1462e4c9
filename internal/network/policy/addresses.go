// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

// span is a range of addresses of one family.
type span struct{ from, to netip.Addr }

// blockSpans returns the addresses of a block without its exceptions.
func blockSpans(b networkingv1.IPBlock) ([]span, error) {
	whole, err := parseBlock(b.CIDR)
	if err != nil {
		return nil, err
	}
	left := []span{whole}
	for _, s := range b.Except {
		except, err := parseBlock(s)
		if err != nil {
			return nil, err
		}
		left = subtract(left, except)
	}
	return left, nil
}

func parseBlock(cidr string) (span, error) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return span{}, fmt.Errorf("block %q: %w", cidr, err)
	}
	if p.Addr().Is4In6() {
		return span{}, fmt.Errorf("block %q: IPv4 addresses must not be written as IPv6", cidr)
	}
	return prefixSpan(p), nil
}

func prefixSpan(p netip.Prefix) span {
	p = p.Masked()
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	return span{p.Addr(), to}
}

// subtract returns the spans without the addresses of another one.
func subtract(from []span, without span) []span {
	var left []span
	for _, s := range from {
		if s.from.Is4() != without.from.Is4() || without.to.Less(s.from) || s.to.Less(without.from) {
			left = append(left, s)
			continue
		}
		if s.from.Less(without.from) {
			left = append(left, span{s.from, without.from.Prev()})
		}
		if without.to.Less(s.to) {
			left = append(left, span{without.to.Next(), s.to})
		}
	}
	return left
}

// merge sorts spans and joins those that overlap or touch: nftables refuses overlaps.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	var merged []span
	for _, s := range spans {
		if n := len(merged); n > 0 && merged[n-1].touches(s) {
			if merged[n-1].to.Less(s.to) {
				merged[n-1].to = s.to
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// touches reports whether no address is between a span and a later one.
func (s span) touches(later span) bool {
	if s.from.Is4() != later.from.Is4() {
		return false
	}
	next := s.to.Next()
	return !next.IsValid() || !next.Less(later.from)
}

func contains(spans []span, a netip.Addr) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return !a.Less(s.from) && !s.to.Less(a) && a.Is4() == s.from.Is4() })
}

// elements returns what matches the merged spans of a family, in nft's syntax; empty if there are none.
func (f family) elements(spans []span) string {
	var all []string
	for _, s := range spans {
		switch {
		case !f.has(s.from):
		case s.from == s.to:
			all = append(all, s.from.String())
		default:
			all = append(all, s.from.String()+"-"+s.to.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	return anonymous(all)
}

// family is IPv4 or IPv6: the suffix of names, nft's keyword and type.
type family struct{ suffix, keyword, address string }

var (
	ipv4     = family{"4", "ip", "ipv4_addr"}
	ipv6     = family{"6", "ip6", "ipv6_addr"}
	families = []family{ipv4, ipv6}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) has(a netip.Addr) bool { return familyOf(a) == f }

// client and server are the two ends of a packet's connection. They are the same for packets of both directions:
// the client before masquerading, the server after the translation by a Service.
func (f family) client() string { return "ct original " + f.keyword + " saddr" }
func (f family) server() string { return "ct reply " + f.keyword + " saddr" }
