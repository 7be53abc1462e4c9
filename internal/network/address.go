// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DefaultAddresses returns the machine's IPv4 address on the interface of its default route: the one that the route
// names as source, else the first of the interface. Of several default routes the one with the lowest metric counts.
// Without a default route there is none.
func DefaultAddresses() ([]netip.Addr, error) {
	route, err := defaultRoute()
	if err != nil || route == nil {
		return nil, err
	}
	if source, ok := netip.AddrFromSlice(route.Src.To4()); ok {
		return []netip.Addr{source}, nil
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return nil, err
	}
	present, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, a := range present {
		if address, ok := netip.AddrFromSlice(a.IP.To4()); ok && a.Scope == unix.RT_SCOPE_UNIVERSE {
			return []netip.Addr{address}, nil
		}
	}
	return nil, nil
}

// defaultRoute returns the IPv4 default route with the lowest metric; nil if there is none.
func defaultRoute() (*netlink.Route, error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	var best *netlink.Route
	for i, r := range routes {
		bits := 0
		if r.Dst != nil {
			bits, _ = r.Dst.Mask.Size()
		}
		if bits == 0 && r.Type == unix.RTN_UNICAST && (best == nil || r.Priority < best.Priority) {
			best = &routes[i]
		}
	}
	return best, nil
}
