// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceip allocates ClusterIPs and node ports to Services.
//
// A claim is stored before the Service that needs it is written, and released after the
// Service has given it up. So every address and port in use is claimed at all times. A
// crash in between leaves an unused claim, which Repair releases, but never an address
// with two users.
//
//   - A ClusterIP is claimed by creating an IPAddress of that name, whose parentRef is the
//     Service (KEP-1880). The store creates a name only once, which makes it a lock across
//     all API servers. The ready ServiceCIDRs define the addresses.
//   - Node ports are the bits of one RangeAllocation, stored under upstream's key and in
//     upstream's form. All ports of a Service are claimed in one compare-and-swap, so that
//     a Service gets all of its ports or none, without 2,768 objects and without state in
//     memory that may differ from the store.
//
// Both allocate random members from the upper part of their range first. The lower part is
// reserved for Services that request a specific one (KEP-3070, KEP-3668).
package serviceip

import (
	"errors"
	"iter"
)

// Errors that users see; the texts are upstream's.
var (
	ErrFull             = errors.New("range is full")
	ErrAddressClaimed   = errors.New("provided IP is already allocated")
	ErrOutsideOfRanges  = errors.New("the provided network does not match the current range")
	ErrPortClaimed      = errors.New("provided port is already allocated")
	ErrPortOutsideRange = errors.New("provided port is not in the valid range. The range of valid ports is " + portRange)
)

// manager is the value of the managed-by label of the claims of Services.
const manager = "ipallocator.k8s.io"

// staticBand returns how many of a range's first members are reserved for specific requests:
// one for each step, at least 16 and at most most. Small ranges reserve none.
func staticBand(size, step, most uint64) uint64 {
	const least = 16
	if size <= least {
		return 0
	}
	return min(max(size/step, least), most)
}

// offers yields the offsets below size in the order in which they are tried: first the dynamic
// band, from a random offset and wrapping around, then the static band.
func offers(size, static uint64, random func(n uint64) uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		_ = around(static, size-static, random, yield) && around(0, static, random, yield)
	}
}

// around yields each offset of a band once. It reports whether to continue.
func around(first, count uint64, random func(n uint64) uint64, yield func(uint64) bool) bool {
	if count == 0 {
		return true
	}
	start := random(count)
	for i := range count {
		at := start + i
		if at >= count || at < start { // at < start: it overflowed
			at -= count
		}
		if !yield(first + at) {
			return false
		}
	}
	return true
}
