// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package links is what several parts do with the links, addresses and routes of the machine, by netlink.
package links

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// AddBridge creates a bridge, unless it exists, and returns it. It has a hardware address of its own: otherwise it would have the lowest
// address of its ports, which changes as they come and go, and who has the old one in its neighbour table would lose packets.
func AddBridge(name string) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, hardwareAddress(name)
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return netlink.LinkByName(name)
}

// hardwareAddress derives a locally administered unicast address (IEEE 802: bit 1 of the first byte set, bit 0 clear) from a link's name.
func hardwareAddress(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(name))
	return append(net.HardwareAddr{0x02}, sum[:5]...)
}

// Remove removes a link, if there is one of that name. The kernel may remove it at the same time, with the network namespace of its peer.
func Remove(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if _, gone := netlink.LinkByName(name); errors.As(gone, new(netlink.LinkNotFoundError)) {
		return nil
	}
	return err
}

// Routed returns the destinations of the machine's routes, without default routes and those of a link.
func Routed(without string) ([]netip.Prefix, error) {
	routes, err := Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("reading the machine's routes: %w", err)
	}
	own := -1
	if link, err := netlink.LinkByName(without); err == nil {
		own = link.Attrs().Index
	}
	var destinations []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		address, ok := netip.AddrFromSlice(r.Dst.IP)
		if bits, _ := r.Dst.Mask.Size(); ok && bits > 0 {
			destinations = append(destinations, netip.PrefixFrom(address.Unmap(), bits))
		}
	}
	return destinations, nil
}

// Address returns an address with the length of its network, as netlink takes it.
func Address(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
}
