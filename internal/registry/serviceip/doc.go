// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceip hands out what Services need and no two may share:
// ClusterIPs and node ports.
//
// A claim is made in the store before the Service that wants it is written, and
// given back after the Service has let go of it. At any moment, then, every
// address and port in use is claimed; a crash in between leaves a claim that
// nobody uses, never an address that two use. Repair finds the former.
//
//   - A ClusterIP is claimed by creating an IPAddress of that name, whose
//     parentRef is the Service (KEP-1880). That the store creates a name once is
//     the lock, across any number of API servers. What may be claimed, the
//     ready ServiceCIDRs say.
//   - Node ports are the bits of one RangeAllocation, in upstream's place and
//     form. All ports of a Service are claimed in one compare-and-swap: there
//     are no 2,768 objects to create and watch for, nothing is kept in memory
//     that could differ from the store, and a Service gets all its ports or none.
//
// Both hand out at random from the upper part of their range first; the lower
// part is for those who ask for a certain one (KEP-3070, KEP-3668).
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

// manager is who manages the claims of Services, as their label says.
const manager = "ipallocator.k8s.io"

// staticBand is how many of a range's first members are kept for those who ask
// for a certain one: one of each step, at least 16, at most most. Small ranges
// keep none.
func staticBand(size, step, most uint64) uint64 {
	const least = 16
	if size <= least {
		return 0
	}
	return min(max(size/step, least), most)
}

// offers are the offsets below size in the order in which they are tried: the
// dynamic band from a random place on and around, then the static one.
func offers(size, static uint64, random func(n uint64) uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		_ = around(static, size-static, random, yield) && around(0, static, random, yield)
	}
}

// around yields each offset of a band once; it reports whether to go on.
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
