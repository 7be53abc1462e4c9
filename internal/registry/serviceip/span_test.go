// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestSpans compares sizes and bands with those of upstream for the same ranges.
func TestSpans(t *testing.T) {
	for cidr, want := range map[string]struct {
		first, last  string
		size, static uint64
	}{
		"10.96.0.0/16":        {"10.96.0.1", "10.96.255.254", 65534, 256},
		"10.96.0.0/20":        {"10.96.0.1", "10.96.15.254", 4094, 256},
		"10.96.0.0/24":        {"10.96.0.1", "10.96.0.254", 254, 16},
		"10.96.0.0/27":        {"10.96.0.1", "10.96.0.30", 30, 16},
		"10.96.0.128/28":      {"10.96.0.129", "10.96.0.142", 14, 0},
		"10.96.0.0/30":        {"10.96.0.1", "10.96.0.2", 2, 0},
		"fd00::/64":           {"fd00::1", "fd00::ffff:ffff:ffff:ffff", 1<<64 - 1, 256},
		"fd00::/112":          {"fd00::1", "fd00::ffff", 65535, 256},
		"fd00:0:0:1::ff0/124": {"fd00:0:0:1::ff1", "fd00:0:0:1::fff", 15, 0},
	} {
		s := spanOf(netip.MustParsePrefix(cidr))
		if s.size != want.size || s.static != want.static {
			t.Errorf("%s: size %d, static %d, want %d, %d", cidr, s.size, s.static, want.size, want.static)
			continue
		}
		first, last := netip.MustParseAddr(want.first), netip.MustParseAddr(want.last)
		if got := s.at(0); got != first {
			t.Errorf("%s begins with %s", cidr, got)
		}
		if got := s.at(s.size - 1); got != last {
			t.Errorf("%s ends with %s", cidr, got)
		}
		if !s.contains(first) || !s.contains(last) || s.contains(first.Prev()) || s.contains(last.Next()) {
			t.Errorf("%s contains an address outside, or not one inside", cidr)
		}
	}
	for _, cidr := range []string{"10.96.0.0/31", "10.96.0.0/32", "fd00::/128", "fd00::/63"} {
		if s := spanOf(netip.MustParsePrefix(cidr)); s.size != 0 || s.contains(netip.MustParsePrefix(cidr).Addr()) {
			t.Errorf("%s has %d addresses", cidr, s.size)
		}
	}
}

// TestOffers checks that each offset is offered once, and the static band last.
func TestOffers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		size := 1 + random.Uint64N(300)
		static := staticBand(size, 16, 256)
		got := slices.Collect(offers(size, static, random.Uint64N))
		for i, offset := range got {
			if dynamic := uint64(i) < size-static; dynamic != (offset >= static) {
				t.Fatalf("size %d, static %d: offer %d is %d", size, static, i, offset)
			}
		}
		slices.Sort(got)
		if uint64(len(got)) != size || got[0] != 0 || got[len(got)-1] != size-1 || len(slices.Compact(got)) != int(size) {
			t.Fatalf("size %d: %d offers from %d to %d", size, len(got), got[0], got[len(got)-1])
		}
	}
}

// TestOffersOfAHugeRange checks that offsets in a range of 2^64 addresses do not overflow.
func TestOffersOfAHugeRange(t *testing.T) {
	s := spanOf(netip.MustParsePrefix("fd00::/64"))
	n := 0
	for address := range s.offers(func(n uint64) uint64 { return n - 2 }) {
		if !s.contains(address) {
			t.Fatalf("%s is offered", address)
		}
		if n++; n == 5 {
			break
		}
	}
}
