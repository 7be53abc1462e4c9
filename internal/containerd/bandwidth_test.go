// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"math"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestBucketFilter: a bucket has space for two packets at least and for 20 ms of traffic, a queue for ten packets and for
// what waits 50 ms. The kernel's numbers of bytes have 32 bits.
func TestBucketFilter(t *testing.T) {
	for bits, want := range map[int64]struct {
		rate         uint64
		burst, limit uint32
	}{
		1_000:                 {125, 3028, 15140},
		10_000_000:            {1_250_000, 25_000, 87_500},
		1_000_000_000:         {125_000_000, 2_500_000, 8_750_000},
		1_000_000_000_000_000: {125_000_000_000_000, math.MaxInt32, math.MaxInt32},
	} {
		got := bucketFilter(7, bits)
		if got.Rate != want.rate || got.Limit != want.limit || got.Buffer != netlink.Xmittime(want.rate, want.burst) || got.LinkIndex != 7 {
			t.Errorf("%d bits: %+v, want %+v", bits, got, want)
		}
	}
}
