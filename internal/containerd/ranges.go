// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kindred-project/kindred/internal/links"
)

// The ranges that the pod ranges of nodes are taken from by default.
var (
	podRanges  = netip.MustParsePrefix("10.244.0.0/16")
	podRanges6 = netip.MustParsePrefix("fd00:10:244::/48")
)

// DefaultClusterCIDRs returns the ranges from which nodes get theirs by default: IPv4, and IPv6 if pods have both.
func DefaultClusterCIDRs(ipv6 bool) []netip.Prefix {
	if ipv6 {
		return []netip.Prefix{podRanges, podRanges6}
	}
	return []netip.Prefix{podRanges}
}

// podCIDRs returns the pod ranges, IPv4 first. Ranges that were used before stay, because pods have addresses of them.
func (o NetworkOptions) podCIDRs() ([]netip.Prefix, error) {
	used, err := o.readPodRanges()
	if err != nil {
		return nil, err
	}
	ipv4, err := o.podCIDR(netip.Addr.Is4, used, 24)
	if err != nil {
		return nil, err
	}
	if ipv4.Bits() > 30 {
		return nil, fmt.Errorf("pod range %s has no room for pods; use at least a /30, such as 10.244.0.0/24", ipv4)
	}
	if !o.IPv6 {
		return []netip.Prefix{ipv4}, nil
	}
	ipv6, err := o.podCIDR(netip.Addr.Is6, used, 64)
	if err != nil {
		return nil, err
	}
	if ipv6.Bits() > 126 {
		return nil, fmt.Errorf("pod range %s has no room for pods; use at least a /126, such as fd00:10:244::/64", ipv6)
	}
	return []netip.Prefix{ipv4, ipv6}, nil
}

// podCIDR returns the range of one IP family: the one that is asked for, else the one that is used, else a free one.
func (o NetworkOptions) podCIDR(is func(netip.Addr) bool, used []netip.Prefix, bits int) (netip.Prefix, error) {
	for _, p := range slices.Concat(o.PodCIDRs, used) {
		if is(p.Addr()) {
			return p.Masked(), nil
		}
	}
	taken, err := links.Routed(o.Names.Bridge)
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, p := range slices.Concat(o.ClusterCIDRs, DefaultClusterCIDRs(true)) {
		if is(p.Addr()) {
			return freeRange(o.Names.ID, p, bits, taken)
		}
	}
	return netip.Prefix{}, errors.New("there is no range for pods") // the defaults have both families
}

// freeRange returns a range of so many bits that overlaps none of the taken ranges. It is one of the first 256 in from.
// The search starts at an offset derived from the ID, so that two data directories rarely choose the same range,
// even if neither has a bridge yet.
func freeRange(id string, from netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, error) {
	seed, err := strconv.ParseUint(id, 16, 32)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("data directory ID %q is not hexadecimal", id)
	}
	count := uint64(1) << min(max(bits-from.Bits(), 0), 8)
	for i := range count {
		candidate := subnet(from, bits, (seed+i)%count)
		if !overlapsAny(candidate, taken) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free /%d in %s: each one overlaps a route of this machine; name a range with --pod-cidr", bits, from)
}

// subnet returns one of the first 256 subnets of a range. bits is a whole number of bytes, as the prefix of each subnet is.
func subnet(from netip.Prefix, bits int, index uint64) netip.Prefix {
	base := from.Masked().Addr().AsSlice()
	base[bits/8-1] |= byte(index)
	address, _ := netip.AddrFromSlice(base) // of the length of an address
	return netip.PrefixFrom(address, bits)
}

func overlapsAny(p netip.Prefix, others []netip.Prefix) bool {
	for _, other := range others {
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

// podRangeFile has the pod ranges of the configuration, separated by commas.
func (o NetworkOptions) podRangeFile() string { return filepath.Join(o.Dir, "pod-cidr") }

func (o NetworkOptions) readPodRanges() ([]netip.Prefix, error) {
	b, err := os.ReadFile(o.podRangeFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ranges []netip.Prefix
	for s := range strings.SplitSeq(string(b), ",") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%s has no valid pod range: %w", o.podRangeFile(), err)
		}
		ranges = append(ranges, p)
	}
	return ranges, nil
}

func (o NetworkOptions) writePodRanges(n Network) error {
	return writeIfChanged(o.podRangeFile(), []byte(strings.Join(n.Ranges(), ",")))
}
