// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/links"
)

// DefaultAddresses returns the machine's IPv4 address on the interface of its default route, and with ipv6 its IPv6 one
// as well: the address that the route names as source, else the first of the interface. Of several default routes the
// one with the lowest metric counts. Without a default route there is none.
func DefaultAddresses(ipv6 bool) ([]netip.Addr, error) {
	families := []int{netlink.FAMILY_V4}
	if ipv6 {
		families = append(families, netlink.FAMILY_V6)
	}
	var all []netip.Addr
	for _, family := range families {
		address, err := defaultAddress(family)
		if err != nil {
			return nil, err
		}
		if address.IsValid() {
			all = append(all, address)
		}
	}
	return all, nil
}

func defaultAddress(family int) (netip.Addr, error) {
	route, err := defaultRoute(family)
	if err != nil || route == nil {
		return netip.Addr{}, err
	}
	if source, ok := netip.AddrFromSlice(route.Src); ok {
		return source.Unmap(), nil
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return netip.Addr{}, err
	}
	present, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range present {
		if address, ok := netip.AddrFromSlice(a.IP); ok && a.Scope == unix.RT_SCOPE_UNIVERSE && a.Flags&passing == 0 {
			return address.Unmap(), nil
		}
	}
	return netip.Addr{}, nil
}

// passing are the flags of IPv6 addresses that clients should not keep: those that change for privacy (RFC 8981), that
// are to go, or that another machine may have.
const passing = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// defaultRoute returns the default route of an IP family with the lowest metric; nil if there is none.
func defaultRoute(family int) (*netlink.Route, error) {
	routes, err := links.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
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
