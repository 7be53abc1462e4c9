// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package neighbours announces addresses on a link, so that other machines and pods on it replace the hardware address
// that they know for an address.
package neighbours

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Announce replaces the entries that the neighbours on a link have for an address by the link's hardware address: by a
// gratuitous ARP request, or an unsolicited neighbor advertisement. A link without Ethernet has no such entries.
func Announce(link netlink.Link, a netip.Addr) error {
	if len(link.Attrs().HardwareAddr) != 6 {
		return nil
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
