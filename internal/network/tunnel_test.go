// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/test/netns"
)

// tunnelled is a machine behind a router, the namespace of the test, with a bridge of pods.
type tunnelled struct {
	*netns.Pod
	address     netip.Addr
	pods, pods6 netip.Prefix
	routes      podRoutes
	// stopWireguardGo stops the process that provides the machine's WireGuard, if it has any.
	stopWireguardGo func()
}

// end is where tunnels to the machine end.
func (m *tunnelled) end() tunnelEnd { return tunnelEnd{m.address, m.pods} }

func newTunnelled(t *testing.T, name string, network, pods, pods6 netip.Prefix) *tunnelled {
	t.Helper()
	m := &tunnelled{Pod: netns.NewMachine(t, name, network), pods: pods, pods6: pods6, routes: newPodRoutes("kin-" + name)}
	m.address = network.Addr()
	m.Do(t, func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pods"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Fatal(err)
		}
		for _, p := range []netip.Prefix{pods, pods6} {
			address := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
			address.IP = net.IP(p.Addr().Next().AsSlice())
			if err := netlink.AddrAdd(bridge, address); err != nil {
				t.Fatal(err)
			}
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			t.Fatal(err)
		}
	})
	m.routes.tunnel = tunnel{link: tunnelLink("kin-" + name), id: 7, own: m.end(), ranges: []netip.Prefix{pods, pods6}}
	return m
}

// ensure restores the routes to another machine.
func (m *tunnelled) ensure(t *testing.T, wantRestored bool, others ...*tunnelled) {
	t.Helper()
	wanted := map[netip.Prefix]hop{}
	for _, other := range others {
		wanted[other.pods] = hop{address: other.address, end: other.end()}
		wanted[other.pods6] = hop{end: other.end()} // without an IPv6 address
	}
	m.routes.set(wanted)
	m.Do(t, func() {
		if restored, err := m.routes.ensure(); err != nil || restored != wantRestored {
			t.Errorf("%s: restored %v, %v", m.pods, restored, err)
		}
	})
}

// twoTunnelled returns two machines behind routers whose tunnels lead to each other, and a server on port 80 of the second one's pods.
func twoTunnelled(t *testing.T) (left, right *tunnelled) {
	t.Helper()
	netns.NewBridge(t, "kin-router", netip.MustParsePrefix("10.99.0.0/24")) // which lets the namespace forward
	left = newTunnelled(t, "left", netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64"))
	right = newTunnelled(t, "right", netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:10:244:2::/64"))
	right.Serve(t, "right", 80)
	left.ensure(t, true, right)
	right.ensure(t, true, left)
	left.reaches(t, "at first", right)
	return left, right
}

// reaches checks that a machine reaches the pods of another one, by both IP families.
func (m *tunnelled) reaches(t *testing.T, when string, other *tunnelled) {
	t.Helper()
	for _, p := range []netip.Prefix{other.pods, other.pods6} {
		address := netip.AddrPortFrom(p.Addr().Next(), 80).String()
		var answer string
		var err error
		for range 50 {
			if answer, err = m.Ask(t, "tcp", address, time.Second); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Errorf("%s, %s: %q, %v", when, address, answer, err)
		}
	}
}

// link runs a function on the tunnel of the machine.
func (m *tunnelled) link(t *testing.T, do func(netlink.Link) error) {
	t.Helper()
	m.Do(t, func() {
		link, err := netlink.LinkByName(m.routes.tunnel.link)
		if err == nil {
			err = do(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestTunnel: pods behind routers reach each other, also after somebody has deleted a part of the tunnel.
func TestTunnel(t *testing.T) {
	left, right := twoTunnelled(t)
	left.ensure(t, false, right)
	for what, remove := range map[string]func(netlink.Link) error{
		"the interface": netlink.LinkDel,
		"down":          netlink.LinkSetDown,
		"the addresses": left.deleteEnds,
		"the route": func(netlink.Link) error {
			return netlink.RouteDel(&netlink.Route{Dst: ipNet(right.pods)})
		},
	} {
		left.link(t, remove)
		left.ensure(t, true, right)
		left.reaches(t, what+" is restored", right)
		left.hasEnds(t, what, left.routes.tunnel.link)
	}
	left.ensure(t, false)
	left.Do(t, func() {
		if link, err := netlink.LinkByName(left.routes.tunnel.link); err == nil {
			t.Errorf("%v is left without a node that needs it", link)
		}
		if present, err := left.routes.present(); err != nil || len(present) > 0 {
			t.Errorf("routes %v are left, %v", present, err)
		}
	})
}

// TestTunnelEntries: entries of the neighbour table and of the forwarding database come back after somebody has deleted them.
func TestTunnelEntries(t *testing.T) {
	left, right := twoTunnelled(t)
	hardware := right.end().hardwareAddress()
	neighbour := func(link netlink.Link, pods netip.Prefix) *netlink.Neigh {
		return &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: familyOf(pods.Addr()), HardwareAddr: hardware, IP: net.IP(pods.Addr().AsSlice())}
	}
	for what, entry := range map[string]func(netlink.Link) *netlink.Neigh{
		"the entry of the forwarding database": func(link netlink.Link) *netlink.Neigh {
			return left.routes.tunnel.forwarding(link, hardware, right.address)
		},
		"the IPv4 neighbour": func(link netlink.Link) *netlink.Neigh { return neighbour(link, right.pods) },
		"the IPv6 neighbour": func(link netlink.Link) *netlink.Neigh { return neighbour(link, right.pods6) },
	} {
		left.link(t, func(link netlink.Link) error { return netlink.NeighDel(entry(link)) })
		left.ensure(t, false, right)
		left.reaches(t, what+" is restored", right)
	}
}

// hasEnds checks that an interface to other machines has the addresses from which the machine itself sends packets.
func (m *tunnelled) hasEnds(t *testing.T, when, name string) {
	t.Helper()
	m.Do(t, func() {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := addressesOf(link)
		for _, want := range []netip.Addr{m.pods.Addr(), m.pods6.Addr()} {
			if err != nil || !slices.Contains(got, want) {
				t.Errorf("%s: %s has the addresses %v, and not %s, %v", when, name, got, want, err)
			}
		}
	})
}

// deleteEnds deletes these addresses. The kernel removes the IPv4 routes through the interface with the last IPv4 address.
func (m *tunnelled) deleteEnds(link netlink.Link) error {
	var errs []error
	for _, p := range []netip.Prefix{m.pods, m.pods6} {
		errs = append(errs, netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))}))
	}
	return errors.Join(errs...)
}

// TestTunnelOnALink: the route to a machine that shares a link becomes one through the tunnel if either wants that.
func TestTunnelOnALink(t *testing.T) {
	netns.NewMachine(t, "outside", netip.MustParsePrefix("192.0.2.1/24"))
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "link"}}
	here := netip.MustParsePrefix("203.0.113.1/24")
	address := &netlink.Addr{IPNet: &net.IPNet{IP: here.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}
	if err := errors.Join(netlink.LinkAdd(bridge), netlink.AddrAdd(bridge, address), netlink.LinkSetUp(bridge)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that the test can be repeated
		for _, name := range []string{tunnelLink("kin-this"), "link"} {
			if err := links.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	r := newPodRoutes("kin-this")
	own := tunnelEnd{here.Addr(), netip.MustParsePrefix("10.244.1.0/24")}
	r.tunnel = tunnel{link: tunnelLink("kin-this"), id: 7, own: own, ranges: []netip.Prefix{own.pods}}
	pods, other := netip.MustParsePrefix("10.244.2.0/24"), netip.MustParseAddr("203.0.113.2")
	for _, tunnelled := range []bool{false, true, true} {
		r.set(map[netip.Prefix]hop{pods: {address: other, tunnelled: tunnelled, end: tunnelEnd{other, pods}}})
		if _, err := r.ensure(); err != nil {
			t.Fatal(err)
		}
		present, err := r.present()
		if err != nil || present[pods] == nil || r.tunnel.carries(present[pods], pods) != tunnelled {
			t.Errorf("tunnelled %v: %v, %v", tunnelled, present, err)
		}
	}
}

// TestTunnelID: clusters have different identifiers of 24 bits.
func TestTunnelID(t *testing.T) {
	seen := map[int]bool{}
	for i := range 100 {
		id := tunnelID(types.UID(fmt.Sprint(i)))
		if id <= 0 || id >= 1<<24 || seen[id] {
			t.Errorf("%d: %d", i, id)
		}
		seen[id] = true
	}
}
