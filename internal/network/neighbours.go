// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/neighbours"
)

// tellNeighbours replaces the entries that neighbours may have for an address.
func tellNeighbours(a netip.Addr) error {
	link, err := linkTowards(a)
	if err != nil || link == nil {
		return err
	}
	return neighbours.Announce(link, a)
}

// linkTowards returns the interface whose network has an address, else that of the default route; nil if there is
// neither.
func linkTowards(a netip.Addr) (netlink.Link, error) {
	addresses, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, familyOf(a)) })
	if err != nil {
		return nil, err
	}
	for _, p := range addresses {
		if ones, _ := p.Mask.Size(); ones < a.BitLen() && p.Contains(net.IP(a.AsSlice())) {
			return netlink.LinkByIndex(p.LinkIndex)
		}
	}
	route, err := defaultRoute(familyOf(a))
	if err != nil || route == nil {
		return nil, err
	}
	return netlink.LinkByIndex(route.LinkIndex)
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// setProxies makes the kernel answer neighbor solicitations for the IPv6 addresses that are wanted, on the interface
// towards each, and for no others of the pools. It forgets them when the interface goes down.
func setProxies(wanted []netip.Addr, pools []netip.Prefix) error {
	if !slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return nil
	}
	err := stopProxies(func(a netip.Addr) bool { return inPools(pools, a) && !slices.Contains(wanted, a) })
	for _, a := range wanted {
		if a.Is6() {
			err = errors.Join(err, proxy(a))
		}
	}
	return err
}

func proxy(a netip.Addr) error {
	link, err := linkTowards(a)
	if err != nil || link == nil {
		return err
	}
	// The kernel answers as a proxy only if it forwards IPv6, which it does for pods.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link.Attrs().Name+"/proxy_ndp", []byte("1"), 0o644); err != nil {
		return err
	}
	err = netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V6, Flags: netlink.NTF_PROXY, IP: a.AsSlice()})
	if err != nil {
		return fmt.Errorf("answering neighbor solicitations for %s: %w", a, err)
	}
	return nil
}

// stopProxies ends what proxy began for some addresses, on all interfaces.
func stopProxies(of func(netip.Addr) bool) error {
	entries, err := links.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighProxyList(0, netlink.FAMILY_V6) })
	if err != nil {
		return err
	}
	for _, e := range entries {
		if a, ok := netip.AddrFromSlice(e.IP); !ok || !of(a) {
			continue
		}
		if err := netlink.NeighDel(&e); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
