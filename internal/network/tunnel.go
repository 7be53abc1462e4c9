// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/links"
)

const (
	// tunnelPort is the UDP port of tunnels: that of VXLAN (RFC 7348).
	tunnelPort = 4789
	// tunnelOverhead is what VXLAN adds to a packet over IPv4: outer IP, UDP, VXLAN and Ethernet headers.
	tunnelOverhead = 50
)

// tunnel is a VXLAN interface that leads to the pods of nodes behind routers. It learns nothing: for each of these nodes it has a
// neighbour and an entry of its forwarding database, and the node's range has a route. All follow from Node objects:
// the gateway of a range is its first address, and the hardware address of a node follows from its IPv4 range. It carries packets of both
// IP families over IPv4.
type tunnel struct {
	// link is the name of the interface; id its VXLAN network identifier, the same on all nodes.
	link string
	id   int
	// own is the end on this machine, and ranges are those of its pods.
	own    tunnelEnd
	ranges []netip.Prefix
}

// tunnelEnd is the end of a tunnel on the machine of a node.
type tunnelEnd struct {
	// machine is the IPv4 address of the machine, and pods the IPv4 range of its pods.
	machine netip.Addr
	pods    netip.Prefix
}

// tunnelEndOf returns the end on the machine of a node with some ranges; one that is not known if either is missing.
func tunnelEndOf(node *v1.Node, ranges []netip.Prefix) tunnelEnd {
	end := tunnelEnd{machine: machineAddress(node, ranges, true)}
	for _, p := range ranges {
		if p.Addr().Is4() {
			end.pods = p
		}
	}
	return end
}

func (e tunnelEnd) isKnown() bool { return e.machine.Is4() && e.pods.IsValid() }

// hardwareAddress returns the hardware address of the end: locally administered, with the first address of the range.
func (e tunnelEnd) hardwareAddress() net.HardwareAddr {
	address := e.pods.Masked().Addr().As4()
	return append(net.HardwareAddr{0x0e, 0x4b}, address[:]...)
}

// tunnelLink returns the name of the tunnel of a bridge. Names have at most 15 bytes.
func tunnelLink(bridge string) string { return bridge + "-vx" }

// tunnelID returns the VXLAN network identifier of a cluster, by the UID of its namespace kube-system, which all nodes know. It has 24
// bits and is not 0.
func tunnelID(cluster types.UID) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(cluster)) // which cannot fail
	return max(int(hash.Sum32()>>8), 1)
}

// ensure restores the interface, and reports whether it had to. If the interface exists but something of it cannot be restored, it returns
// the interface and an error.
func (t tunnel) ensure() (link netlink.Link, restored bool, err error) {
	below, err := underlay(t.own.machine)
	if err != nil {
		return nil, false, err
	}
	link, err = netlink.LinkByName(t.link)
	if err == nil && t.fits(link) {
		restored, err = t.mend(link, below)
		return link, restored, err
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	var absent netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &absent) {
		return nil, false, err
	}
	if link, err = t.add(tunnelMTU(below)); err != nil {
		return nil, false, err
	}
	_, err = t.mendChecksums(below)
	return link, true, errors.Join(err, addEnds(link, t.ranges), netlink.LinkSetUp(link))
}

// add adds the interface.
func (t tunnel) add(mtu int) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = t.link, t.own.hardwareAddress(), mtu
	vxlan := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: t.id, SrcAddr: net.IP(t.own.machine.AsSlice()), Port: tunnelPort, Learning: false}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return nil, fmt.Errorf("VXLAN interface %s: %w", t.link, err)
	}
	return netlink.LinkByName(t.link)
}

// mend restores what can be changed without removing the interface, so that connections continue, and reports whether it had to.
func (t tunnel) mend(link, below netlink.Link) (restored bool, err error) {
	if mtu := tunnelMTU(below); link.Attrs().MTU != mtu {
		restored, err = true, netlink.LinkSetMTU(link, mtu)
	}
	turnedOff, failed := t.mendChecksums(below)
	// The addresses are last, because an interface with an MTU below 1280 takes no IPv6 addresses.
	return restored || turnedOff, errors.Join(err, failed, addEnds(link, t.ranges))
}

// tunnelMTU returns the MTU of a tunnel above a link.
func tunnelMTU(below netlink.Link) int { return below.Attrs().MTU - tunnelOverhead }

// addEnds gives an interface to other nodes the first address of each range of this node's pods: it is the source address of the
// machine's own packets.
func addEnds(link netlink.Link, ranges []netip.Prefix) error {
	for _, pods := range ranges {
		first := pods.Masked().Addr()
		end := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(first, first.BitLen()))}
		if err := netlink.AddrAdd(link, end); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("address %s of %s: %w", first, link.Attrs().Name, err)
		}
	}
	return nil
}

// fits reports whether an interface is this tunnel, up. What mend can restore does not count.
func (t tunnel) fits(link netlink.Link) bool {
	vxlan, ok := link.(*netlink.Vxlan)
	return ok && vxlan.VxlanId == t.id && vxlan.SrcAddr.Equal(net.IP(t.own.machine.AsSlice())) && !vxlan.Learning &&
		vxlan.HardwareAddr.String() == t.own.hardwareAddress().String() && vxlan.Flags&net.FlagUp != 0
}

// underlay returns the link that has an address of this machine.
func underlay(own netip.Addr) (netlink.Link, error) {
	all, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, familyOf(own)) })
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if address, ok := netip.AddrFromSlice(a.IP); ok && address.Unmap() == own {
			return netlink.LinkByIndex(a.LinkIndex)
		}
	}
	return nil, fmt.Errorf("no interface has the address %s of this node", own)
}

// reaches reports whether the tunnel can lead to an end.
func (t tunnel) reaches(end tunnelEnd) bool { return t.own.isKnown() && end.isKnown() }

// carries reports whether a route to the pods of a node leads through a tunnel: its gateway is the tunnel's end there.
func (t tunnel) carries(route *netlink.Route, pods netip.Prefix) bool {
	if gateway(route) != pods.Masked().Addr() {
		return false
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	return err == nil && link.Attrs().Name == t.link && t.fits(link)
}

// connect makes the kernel send packets for ranges of pods to the ends of the tunnel there, and to no others.
func (t tunnel) connect(link netlink.Link, nodes map[netip.Prefix]tunnelEnd) error {
	present, err := t.connected(link)
	if err != nil {
		return err
	}
	var errs []error
	wanted := map[string]bool{}
	for pods, end := range nodes {
		hardware := end.hardwareAddress()
		wanted[hardware.String()] = true
		neighbour := &netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: familyOf(pods.Addr()), State: netlink.NUD_PERMANENT, HardwareAddr: hardware, IP: net.IP(pods.Masked().Addr().AsSlice()),
		}
		errs = append(errs, netlink.NeighSet(neighbour))
		if present[hardware.String()] != end.machine {
			errs = append(errs, netlink.NeighSet(t.forwarding(link, hardware, end.machine)))
		}
	}
	for address, node := range present {
		if hardware, err := net.ParseMAC(address); err == nil && !wanted[address] {
			errs = append(errs, netlink.NeighDel(t.forwarding(link, hardware, node)))
		}
	}
	return errors.Join(errs...)
}

// forwarding returns the entry of the tunnel's forwarding database by which packets for a hardware address go to a node.
func (t tunnel) forwarding(link netlink.Link, hardware net.HardwareAddr, node netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, HardwareAddr: hardware, IP: net.IP(node.AsSlice()),
	}
}

// connected returns the nodes of the tunnel: the addresses in its forwarding database by hardware addresses.
func (t tunnel) connected(link netlink.Link) (map[string]netip.Addr, error) {
	entries, err := links.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(link.Attrs().Index, unix.AF_BRIDGE) })
	if err != nil {
		return nil, err
	}
	nodes := map[string]netip.Addr{}
	for _, e := range entries {
		if address, ok := netip.AddrFromSlice(e.IP); ok {
			nodes[e.HardwareAddr.String()] = address.Unmap()
		}
	}
	return nodes, nil
}

// remove removes the tunnel, if there is one.
func (t tunnel) remove() error { return links.Remove(t.link) }
