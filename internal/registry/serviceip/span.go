// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// span is the addresses of a range that may be handed out: all but the
// network's own and, in IPv4, the broadcast address.
type span struct {
	first        netip.Addr
	size, static uint64
}

// maxHostBits is how large an IPv6 range may be: a /64.
const maxHostBits = 64

// spanOf is empty for ranges too small or too large to hand out from.
func spanOf(prefix netip.Prefix) span {
	bits := prefix.Addr().BitLen() - prefix.Bits()
	kept := uint64(1) // the network's address
	if prefix.Addr().Is4() {
		kept = 2 // and the broadcast address
	}
	if bits > maxHostBits {
		return span{}
	}
	var total uint64 // 0 stands for 2^64, and so total-kept is right
	if bits < maxHostBits {
		total = 1 << bits
	}
	if bits < maxHostBits && total <= kept {
		return span{}
	}
	size := total - kept
	return span{first: prefix.Masked().Addr().Next(), size: size, static: staticBand(max(total, size), 16, 256)}
}

func (s span) contains(address netip.Addr) bool {
	if s.size == 0 || address.BitLen() != s.first.BitLen() || address.Less(s.first) {
		return false
	}
	return !s.at(s.size - 1).Less(address)
}

// at is the address that many after the first. The low half of an address is
// all that differs within a range.
func (s span) at(offset uint64) netip.Addr {
	bytes := s.first.As16()
	low := binary.BigEndian.Uint64(bytes[8:]) + offset
	binary.BigEndian.PutUint64(bytes[8:], low)
	address := netip.AddrFrom16(bytes)
	if s.first.Is4() {
		return address.Unmap()
	}
	return address
}

// offers are the addresses in the order in which they are tried.
func (s span) offers(random func(n uint64) uint64) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for offset := range offers(s.size, s.static, random) {
			if !yield(s.at(offset)) {
				return
			}
		}
	}
}
