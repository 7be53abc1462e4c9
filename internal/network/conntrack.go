// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/network/service"
)

// forgetStale makes the kernel forget the UDP flows to endpoints that may not get them any more. A client that keeps
// its source port would be sent to such an endpoint as long as it sends: only the first packet of a flow meets
// the rules. It is called when the new rules are in the kernel. Flows to the present endpoints stay, and so does
// all TCP, whose clients notice.
func forgetStale(all []service.Datagrams) error {
	if len(all) == 0 {
		return nil
	}
	filter := newStaleFlows(all)
	var err error
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, failed := links.Whole(func() (uint, error) {
			return netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter)
		})
		err = errors.Join(err, failed)
	}
	return err
}

// staleFlows selects flows by their destination.
type staleFlows struct {
	addresses map[netip.AddrPort][]netip.AddrPort
	ports     map[uint16][]netip.AddrPort
}

func newStaleFlows(all []service.Datagrams) staleFlows {
	s := staleFlows{addresses: map[netip.AddrPort][]netip.AddrPort{}, ports: map[uint16][]netip.AddrPort{}}
	for _, d := range all {
		if to := netip.AddrPortFrom(d.To, d.Port); d.To.IsValid() {
			s.addresses[to] = append(s.addresses[to], d.Endpoints...)
		} else {
			s.ports[d.Port] = append(s.ports[d.Port], d.Endpoints...)
		}
	}
	return s
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	endpoints, known := s.addresses[endOf(flow.Forward.DstIP, flow.Forward.DstPort)]
	if !known {
		if endpoints, known = s.ports[flow.Forward.DstPort]; !known || !isTranslated(flow) {
			return false
		}
	}
	return !slices.Contains(endpoints, endOf(flow.Reverse.SrcIP, flow.Reverse.SrcPort))
}

// isTranslated reports whether the destination of a flow was translated. Flows to the number of a node port on
// another machine are not.
func isTranslated(flow *netlink.ConntrackFlow) bool {
	return !flow.Forward.DstIP.Equal(flow.Reverse.SrcIP) || flow.Forward.DstPort != flow.Reverse.SrcPort
}

func endOf(ip net.IP, port uint16) netip.AddrPort {
	address, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(address.Unmap(), port)
}
