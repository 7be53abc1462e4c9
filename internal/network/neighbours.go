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
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/dump"
)

// tellNeighbours replaces the entries that neighbours may have for an address.
func tellNeighbours(a netip.Addr) error {
	link, err := linkTowards(a)
	if err != nil || link == nil || len(link.Attrs().HardwareAddr) != 6 {
		return err // there are no neighbours without an Ethernet interface
	}
	if a.Is4() {
		return requestARP(link, a)
	}
	return advertise(link, a)
}

// requestARP sends a gratuitous ARP request.
func requestARP(link netlink.Link, a netip.Addr) error {
	const arp = uint16(unix.ETH_P_ARP>>8 | unix.ETH_P_ARP&0xff<<8) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Protocol: arp, Ifindex: link.Attrs().Index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	return unix.Sendto(fd, announcement(link.Attrs().HardwareAddr, a), 0, to)
}

// announcement returns an ARP announcement as RFC 5227 has it: a request whose sender and target is the address.
func announcement(from net.HardwareAddr, a netip.Addr) []byte {
	packet := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, their lengths, request
	packet = append(append(packet, from...), a.AsSlice()...)
	return append(append(packet, make([]byte, 6)...), a.AsSlice()...)
}

// advertise sends an unsolicited neighbor advertisement to all nodes of the link (RFC 4861, section 7.2.6).
func advertise(link netlink.Link, a netip.Addr) error {
	// The kernel computes the checksum.
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	index := link.Attrs().Index
	// Receivers drop advertisements with another hop limit, because a router could have forwarded them.
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index); err != nil {
		return err
	}
	to := &unix.SockaddrInet6{ZoneId: uint32(index), Addr: netip.IPv6LinkLocalAllNodes().As16()}
	return unix.Sendto(fd, advertisement(link.Attrs().HardwareAddr, a), 0, to)
}

// advertisement returns a neighbor advertisement with the flag that overrides entries and the option that has the
// link-layer address (RFC 4861, section 4.4).
func advertisement(from net.HardwareAddr, a netip.Addr) []byte {
	const (
		neighborAdvertisement = 136
		override              = 0x20
		targetLinkAddress     = 2
	)
	packet := []byte{neighborAdvertisement, 0, 0, 0, override, 0, 0, 0}
	packet = append(packet, a.AsSlice()...)
	return append(append(packet, targetLinkAddress, 1), from...) // the option's length is in units of 8 bytes
}

// linkTowards returns the interface whose network has an address, else that of the default route; nil if there is
// neither.
func linkTowards(a netip.Addr) (netlink.Link, error) {
	addresses, err := dump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, familyOf(a)) })
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
	entries, err := dump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighProxyList(0, netlink.FAMILY_V6) })
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
