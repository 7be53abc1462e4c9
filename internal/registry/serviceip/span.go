// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// span holds the addresses of a range that can be allocated: all but the network address and, in
// IPv4, the broadcast address.
type span struct {
	first        netip.Addr
	size, static uint64
}

// maxHostBits limits IPv6 ranges to a /64.
const maxHostBits = 64

// spanOf returns an empty span for a range that is too small or too large.
func spanOf(prefix netip.Prefix) span {
	bits := prefix.Addr().BitLen() - prefix.Bits()
	kept := uint64(1) // the network address
	if prefix.Addr().Is4() {
		kept = 2 // and the broadcast address
	}
	if bits > maxHostBits {
		return span{}
	}
	var total uint64 // 0 means 2^64: total-kept wraps around to the right size
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

// at returns the address at an offset from the first. Only the low 64 bits differ within a range.
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

// offers yields the addresses in the order in which they are tried.
func (s span) offers(random func(n uint64) uint64) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for offset := range offers(s.size, s.static, random) {
			if !yield(s.at(offset)) {
				return
			}
		}
	}
}
