// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/network/nft"
	"github.com/kindred-project/kindred/internal/network/service"
)

// announcedSource is the source of the rules for announced addresses. It has no slash, unlike those of Services.
const announcedSource = "announced"

// announce makes the machine answer ARP for the addresses of pools that this node is elected for, and stop that for
// the others. An address is announced by adding it to the interface of Services: the kernel answers for the
// addresses of all its interfaces on each of them.
func (n *Network) announce() {
	if n.routes.link == "" {
		return
	}
	wanted := n.elected()
	var rules nft.Fragment
	for _, a := range wanted {
		rules.AddElement("balancer-ips4", a.String(), "")
	}
	n.table.Put(announcedSource, rules)
	if err := n.routes.setAddresses(wanted); err != nil {
		klog.ErrorS(err, "Announcing the addresses of load balancers; it is tried again")
	}
}

// elected returns the addresses of pools that this node announces.
func (n *Network) elected() []netip.Addr {
	if len(n.options.Pools) == 0 || len(n.balancers) == 0 {
		return nil
	}
	nodes, _ := n.options.Informers.Core().V1().Nodes().Lister().List(labels.Everything()) // from the cache
	var candidates []string
	for _, node := range nodes {
		if _, simulated := node.Labels[n.options.Simulated]; !simulated && announces(node) {
			candidates = append(candidates, node.Name)
		}
	}
	var all []netip.Addr
	for key, svc := range n.balancers {
		able := candidates
		if svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
			endpointSlices := n.slicesOf(key)
			if with := keepNodes(candidates, func(name string) bool { return service.ReadyOn(service.Node{Name: name}, endpointSlices) > 0 }); len(with) > 0 {
				able = with
			}
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			a, err := netip.ParseAddr(in.IP)
			if err == nil && a.Is4() && inPools(n.options.Pools, a) && elect(a, able) == n.options.Node {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// announces reports whether a node may announce addresses.
func announces(node *v1.Node) bool {
	if _, excluded := node.Labels[v1.LabelNodeExcludeBalancers]; excluded {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

func keepNodes(names []string, able func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !able(name) })
}

func inPools(pools []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Contains(a) })
}

// elect returns the node that announces an address; "" if there is none. All nodes that see the same candidates
// elect the same one, and a candidate that goes moves only its own addresses (rendezvous hashing).
func elect(a netip.Addr, candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	score := func(name string) uint64 {
		sum := sha256.Sum256([]byte(a.String() + " " + name))
		return binary.BigEndian.Uint64(sum[:])
	}
	return slices.MaxFunc(candidates, func(x, y string) int {
		return cmp.Or(cmp.Compare(score(x), score(y)), cmp.Compare(x, y))
	})
}

// setAddresses makes the IPv4 addresses of the interface of Services those that are wanted, and tells the network about
// new ones.
func (r routes) setAddresses(wanted []netip.Addr) error {
	link, err := netlink.LinkByName(r.link)
	if err != nil {
		return err
	}
	present, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	has := map[netip.Addr]bool{}
	for _, p := range present {
		a, _ := netip.AddrFromSlice(p.IP.To4())
		if has[a] = true; slices.Contains(wanted, a) {
			continue
		}
		if err := netlink.AddrDel(link, &p); err != nil {
			return fmt.Errorf("removing address %s: %w", a, err)
		}
	}
	for _, a := range wanted {
		if has[a] {
			continue
		}
		address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NOPREFIXROUTE}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("adding address %s: %w", a, err)
		}
		if err := tellNeighbours(a); err != nil {
			klog.ErrorS(err, "Neighbours may send packets to the former node of an address for a while", "address", a)
		}
	}
	return nil
}

// tellNeighbours sends a gratuitous ARP request, which replaces the entry that neighbours may have for an address.
func tellNeighbours(a netip.Addr) error {
	link, err := linkTowards(a)
	if err != nil || link == nil || len(link.Attrs().HardwareAddr) != 6 {
		return err // there are no neighbours without an Ethernet interface
	}
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

// linkTowards returns the interface whose network has an address, else that of the default route; nil if there is
// neither.
func linkTowards(a netip.Addr) (netlink.Link, error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, p := range addresses {
		if ones, _ := p.Mask.Size(); ones < a.BitLen() && p.Contains(net.IP(a.AsSlice())) {
			return netlink.LinkByIndex(p.LinkIndex)
		}
	}
	route, err := defaultRoute(netlink.FAMILY_V4)
	if err != nil || route == nil {
		return nil, err
	}
	return netlink.LinkByIndex(route.LinkIndex)
}
